"""Ids by prefix or name, durations, relative times, and tables that fit a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.cli.messages import UsageError
from jupyter_exec_ext.cli.relative_times import exact_and_relative, relative_time
from jupyter_exec_ext.cli.short_ids import find_execution, find_session, is_whole_id, matching_ids, only_execution_id
from jupyter_exec_ext.cli.terminal_text import print_table
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.client.durations import duration, duration_or_never
from jupyter_exec_ext.errors import ExecutionNotFound, SessionNotFound
from tests.support.hosts import Host

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z


@pytest.fixture
def client(hosts: dict[str, Host]) -> Iterator[ExecClient]:
    with ExecClient(hosts["server"].info) as client:
        yield client


# --- ids ---


def test_session_is_found_by_id_prefix_or_name(client: ExecClient) -> None:
    with client.session(name="by name") as session, client.session(name="another"):
        for text in (session.id, session.id[:20], session.id[4:20], "by name"):
            assert find_session(client, text).id == session.id


def test_ambiguous_session_lists_the_candidates(client: ExecClient) -> None:
    with client.session(name="twin") as one, client.session(name="twin") as other:
        with pytest.raises(UsageError, match="write more of the id") as caught:
            find_session(client, "twin")
        assert {one.id, other.id} <= set(str(caught.value).replace(",", "").split())


@pytest.mark.parametrize("text", ["", "ses_"])
def test_empty_text_is_no_session_even_if_there_is_only_one(client: ExecClient, text: str) -> None:
    with client.session(), pytest.raises(SessionNotFound):
        find_session(client, text)


def test_whole_id_may_have_a_servers_name() -> None:
    assert is_whole_id(f"ses_w2_{'a' * 24}") and is_whole_id(f"exe_{'a' * 24}")
    assert not is_whole_id(f"ses_w2_{'a' * 23}")


def test_ended_session_is_found_if_no_other_has_its_name(client: ExecClient) -> None:
    with client.session(name="ending") as ended:
        pass
    assert find_session(client, "ending").id == ended.id
    with client.session(name="ending") as running:
        assert find_session(client, "ending").id == running.id


def test_unknown_session_suggests_a_similar_one(client: ExecClient) -> None:
    with client.session(name="analysis") as session:
        with pytest.raises(SessionNotFound, match="did you mean 'analysis'\\? "):
            find_session(client, "analisys")
        wrong = session.id[:-1] + ("0" if session.id[-1] != "0" else "1")
        with pytest.raises(SessionNotFound, match=f"did you mean '{session.id}'"):
            find_session(client, wrong)
        with pytest.raises(SessionNotFound, match="session list"):
            find_session(client, "zzz")


def test_execution_is_found_by_prefix(client: ExecClient) -> None:
    with client.session() as session:
        execution = session.run("1")
        for text in (execution.id, execution.id[:20], execution.id[4:20]):
            assert find_execution(client, text).id == execution.id
        with pytest.raises(ExecutionNotFound, match="there is no execution 'zzz'"):
            find_execution(client, "zzz")


@pytest.mark.parametrize(
    ("text", "found"),
    [("ses_w2_ab1", 1), ("w2_ab1", 1), ("ab1", 1), ("ses_ab1", 1), ("ab", 2), ("ses_w2_a", 0), ("a", 0), ("cd", 1)]
    + [(text, 0) for text in ("w2", "w2_", "ses_w2", "ses_w2_", "2_ab1", "b1")],
)
def test_id_with_a_servers_name_is_found_by_its_start_or_its_digits(text: str, found: int) -> None:
    assert len(matching_ids(text, ["ses_w2_ab12", "ses_w2_ab34", "ses_cd12"], "ses_")) == found


def test_only_execution_id_keeps_a_text_that_matches_none() -> None:
    ids = ["exe_ab1", "exe_ab2", "exe_cd1"]
    assert (only_execution_id("cd", ids), only_execution_id("c", ids), only_execution_id("zz", ids)) == (
        *("exe_cd1", "c", "zz"),
    )
    with pytest.raises(UsageError, match="'ab' matches exe_ab1, exe_ab2; write more of the id"):
        only_execution_id("ab", ids)


def test_sessions_are_stopped_by_name(
    client: ExecClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", str(client.connection_info.token))
    where = ["--server", client.connection_info.url]
    assert main(["session", "start", "--name", "stopped by name", "--idle-timeout", "30m", *where]) == 0
    session = capsys.readouterr().out.strip()
    assert client.get_session(session).record.idle_timeout_seconds == 1800
    assert main(["session", "list", *where]) == 0
    assert " s ago        stopped by name" in capsys.readouterr().out
    assert main(["session", "stop", "stopped by name", *where]) == 0
    assert client.get_session(session).record.state == "ended"


def test_files_and_code_go_to_a_session_by_its_name(
    client: ExecClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", str(client.connection_info.token))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("21")
    where = ["--server", client.connection_info.url]
    with client.session(name="mine here") as session:
        assert main(["file", "upload", "mine here", "in.txt", *where]) == 0
        assert main(["run", "-c", "print(open('in.txt').read() * 2)", "--session", session.id[4:20], *where]) == 0
        assert capsys.readouterr().out == "2121\n"
        assert main(["file", "list", "mine hree", *where]) == 3
        assert "there is no session 'mine hree'; did you mean 'mine here'? 'jupyter" in capsys.readouterr().err


# --- durations and times ---


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1m", 60), ("1.5h", 5400), ("2h", 7200), ("1d", 86_400)]
)
def test_duration_is_parsed_to_seconds(text: str, seconds: float) -> None:
    assert duration(text) == duration_or_never(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "nan", "inf", "1e999", "1w", "1h30"])
def test_other_texts_are_no_durations(text: str) -> None:
    for parse in (duration, duration_or_never):
        with pytest.raises(ValueError):  # noqa: PT011  # argparse has the message
            parse(text)


def test_only_some_durations_may_be_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert duration_or_never("0") == duration_or_never("0h") == 0
    with pytest.raises(SystemExit):
        main(["run", "-c", "1", "--timeout", "0"])
    assert "invalid duration (such as 90, 90s, 30m, 8h or 30d) value: '0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("timestamp", "words"),
    [
        ("2023-11-14T22:13:17.200Z", "3 s ago"),
        ("2023-11-14T22:10:20Z", "3 min ago"),
        ("2023-11-15T00:13:20.000Z", "in 2 h"),
        ("2023-11-16T10:13:20Z", "in 36 h"),
        ("2023-12-14T22:13:20Z", "in 30 d"),
        (None, "-"),
        ("", "-"),
        ("soon", "soon"),
    ],
)
def test_time_is_shown_relative_to_now(timestamp: str | None, words: str) -> None:
    assert relative_time(timestamp, NOW) == words


def test_exact_time_stands_beside_the_relative_one() -> None:
    assert exact_and_relative("2000-01-01T00:00:00Z").startswith("2000-01-01T00:00:00Z (")
    assert exact_and_relative(None) == "-"


# --- tables ---

ROWS = [("ID", "WHY", "NAME"), ("ses_0123456789", "it runs a shell command", "名前" * 10), ("b", "c", "d")]


class TerminalOutput(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, output: io.StringIO, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", output)
    print_table(ROWS)
    return output.getvalue().splitlines()


def test_table_fits_a_terminal_and_keeps_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, TerminalOutput(), 50)
    assert lines == [
        "ID              WHY               NAME",
        "ses_0123456789  it runs a shell\u2026  名前名前名前名\u2026",
        "b               c                 d",
    ]
    assert all(line.startswith("ses_0123456789  ") for line in printed(monkeypatch, TerminalOutput(), 10)[1:2])


def test_table_in_a_file_is_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert any("it runs a shell command  " + "名前" * 10 in line for line in printed(monkeypatch, io.StringIO(), 20))
    assert printed(monkeypatch, TerminalOutput(), 200) == printed(monkeypatch, io.StringIO(), 20)
    assert os.environ["COLUMNS"] == "20"
