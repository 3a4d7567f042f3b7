"""``jupyter exec session checkpoint``, ``restore`` and ``branch`` as people type them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_exec_ext.cli.checkpoint_actions import branch_count
from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.cli.messages import UsageError
from jupyter_exec_ext.cli.short_ids import find_checkpoint
from jupyter_exec_ext.client import ExecClient, ExecSession
from jupyter_exec_ext.errors import CheckpointNotFound
from tests.support.hosts import Host

Run = Callable[..., tuple[int, str, str]]
_WAITING_THREAD = (
    "import threading; stop = threading.Event(); "
    "threading.Thread(target=stop.wait, name='waiting\\x1b[1m', daemon=True).start()"
)


@pytest.fixture
def client(hosts: dict[str, Host]) -> Iterator[ExecClient]:
    with ExecClient(hosts["server"].info) as client:
        yield client


@pytest.fixture
def session(client: ExecClient) -> Iterator[ExecSession]:
    with client.session(name="analysis") as session:
        session.run("x = 1")
        yield session


@pytest.fixture
def run(
    hosts: dict[str, Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run an action of ``jupyter exec session`` in this process; return the exit code, standard output and error."""
    host = hosts["server"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_TOKEN", str(host.info.token))

    def run_action(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["session", *args, "--server", host.info.url])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_action


def test_session_goes_back_to_a_checkpoint_by_name_and_by_start_of_its_id(session: ExecSession, run: Run) -> None:
    code, printed, _ = run("checkpoint", "analysis", "clean")
    checkpoint_id = printed.strip()
    assert (code, checkpoint_id[:4], len(printed.split())) == (0, "chk_", 1)
    for text in ("clean", checkpoint_id[:12], checkpoint_id[4:12], checkpoint_id):
        session.run("x = 2")
        assert run("restore", "analysis", text) == (0, "", "")
        assert session.run("print(x)").stdout == "1\n"


def test_a_session_that_was_started_with_auto_checkpoint_has_one_before_each_run(client: ExecClient, run: Run) -> None:
    _, printed, _ = run("start", "--auto-checkpoint", "each_run")
    with client.get_session(printed.strip()) as session:
        executions = [session.run(text) for text in ("1", "2")]
        _, listed, _ = run("checkpoints", session.id)
    assert [line.split()[-1] for line in listed.splitlines()[1:]] == [execution.id for execution in executions]


def test_list_has_times_memory_and_names_until_checkpoints_are_deleted(session: ExecSession, run: Run) -> None:
    for name in ("first", "second"):
        run("checkpoint", "analysis", name)
    _, printed, _ = run("checkpoints", "analysis")
    heading, *lines = printed.splitlines()
    assert heading.split() == ["ID", "CREATED", "MEMORY", "WITHOUT", "NAME"]
    assert [line.split()[-1] for line in lines] == ["first", "second"]
    assert all(" s ago " in line and " MB " in line for line in lines)
    assert run("delete-checkpoint", "analysis", "first") == (0, "", "")
    assert [checkpoint.name for checkpoint in session.checkpoints()] == ["second"]


def test_branches_outlive_the_command_and_have_the_checkpoints_state(
    client: ExecClient, session: ExecSession, run: Run
) -> None:
    run("checkpoint", "analysis", "clean")
    session.run("x = 2")
    _, of_checkpoint, _ = run("branch", "analysis", "--checkpoint", "clean", "--count", "2")
    _, of_now, _ = run("branch", "analysis")
    ids = [*of_checkpoint.split(), *of_now.split()]
    try:
        assert [client.get_session(each).run("print(x)").stdout for each in ids] == ["1\n", "1\n", "2\n"]
    finally:
        run("stop", *ids)


def test_same_random_numbers_are_drawn_again(session: ExecSession, run: Run) -> None:
    session.run("import random")
    run("checkpoint", "analysis", "before")
    drawn = session.run("print(random.random())").stdout
    run("restore", "analysis", "before", "--same-random")
    assert session.run("print(random.random())").stdout == drawn
    run("restore", "analysis", "before")
    assert session.run("print(random.random())").stdout != drawn
    _, branch_id, _ = run("branch", "analysis", "--checkpoint", "before", "--same-random")
    with ExecClient(session.connection_info) as client:
        assert client.get_session(branch_id.strip()).run("print(random.random())").stdout == drawn
    run("stop", branch_id.strip())


def test_checkpoint_that_would_lack_a_thread_needs_force(session: ExecSession, run: Run) -> None:
    session.run(_WAITING_THREAD)
    code, printed, message = run("checkpoint", "analysis")
    assert (code, printed) == (3, "")
    assert "thread: waiting" in message
    code, printed, message = run("checkpoint", "analysis", "forced", "--force")
    assert (code, len(printed.split())) == (0, 1)
    assert message == "jupyter exec: the checkpoint is without: 'thread: waiting\\x1b[1m'\n"
    assert run("checkpoints", "analysis")[1].splitlines()[1].split()[-2:] == ["thread", "forced"]


def test_unknown_checkpoint_suggests_a_similar_one(session: ExecSession) -> None:
    made = session.checkpoint("cleaned")
    assert find_checkpoint(session, "cleaned") == find_checkpoint(session, made.id)
    with pytest.raises(CheckpointNotFound, match="did you mean 'cleaned'\\? 'jupyter exec session checkpoints'"):
        find_checkpoint(session, "claened")
    with pytest.raises(CheckpointNotFound, match="session checkpoints"):
        find_checkpoint(session, "")


def test_ambiguous_checkpoint_lists_the_candidates(session: ExecSession) -> None:
    made = [session.checkpoint("twin") for _ in range(2)]
    with pytest.raises(UsageError, match="write more of the id") as caught:
        find_checkpoint(session, "twin")
    assert all(checkpoint.id in str(caught.value) for checkpoint in made)


def test_number_of_branches_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert [branch_count(text) for text in ("1", "16")] == [1, 16]
    for wrong in ("0", "17", "-1", "two", "1.0"):
        with pytest.raises(SystemExit):
            main(["session", "branch", "analysis", f"--count={wrong}"])
        assert "write one from 1 to 16" in capsys.readouterr().err
