"""What the executor for ACA sessions sends, and what it makes of what a service may answer: with the stand-in."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ACADynamicSessionsCodeExecutor, AccessToken
from jupyter_exec_ext.aca.executor import executor_files, pool_session
from jupyter_exec_ext.aca.executor.session_runs import error_of, execution_of
from jupyter_exec_ext.aca.protocol.run_format import RunResult, RunStatus
from jupyter_exec_ext.errors import Forbidden, InvalidRequest, PropertiesMissing, Unauthenticated
from jupyter_exec_ext.models.execution_display import run_seconds
from tests.aca.client.pool_service import ACAService, Answer, AsyncTokens, Seen, Tokens, error
from tests.aca.executor.pools import ENVELOPE, FLAT, python
from tests.support.waiting import until

Make = Callable[..., ACADynamicSessionsCodeExecutor]


@pytest.fixture
def service() -> Iterator[ACAService]:
    with ACAService() as service:
        yield service


@pytest.fixture
async def make(service: ACAService, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[ACADynamicSessionsCodeExecutor] = []

    def make(credential: Any = None, **options: Any) -> ACADynamicSessionsCodeExecutor:
        options = {"work_dir": tmp_path, **options}
        made.append(ACADynamicSessionsCodeExecutor(service.endpoint, credential or Tokens(service), **options))
        return made[-1]

    yield make
    for executor in made:
        await executor.stop()


async def run(executor: ACADynamicSessionsCodeExecutor, *codes: str) -> tuple[int, str]:
    result = await executor.execute_code_blocks(python(*codes))
    return result.exit_code, result.output


def asked(service: ACAService) -> list[tuple[str, str]]:
    return [(seen.method, seen.path.rpartition("/p/")[2]) for seen in service.seen]


def answering(path: str, *answers: Answer) -> Callable[[Seen], Answer | None]:
    """Answer requests to a path with these, in turn, and the rest as usual."""
    left = list(answers)
    return lambda seen: left.pop(0) if left and seen.path.endswith(path) else None


# --- requests ---


@pytest.mark.parametrize(("api_version", "path"), [(ENVELOPE, "code/execute"), (FLAT, "executions")])
async def test_the_first_request_is_the_users_code(
    make: Make, service: ACAService, api_version: str, path: str
) -> None:
    """D54, D52, D58."""
    executor = make(api_version=api_version, timeout=42)
    assert await run(executor, "first", "second") == (0, "run 1\nrun 2\n")
    assert asked(service) == [("POST", path)] * 2
    bodies = [json.loads(seen.body) for seen in service.seen]
    first, second = (body["properties"] if api_version == ENVELOPE else body for body in bodies)
    assert first["code"].splitlines()[1:] == ["first"]
    assert "pkg_resources" not in first["code"]
    assert second["code"] == "second"
    assert first["timeoutInSeconds"] == second["timeoutInSeconds"] == 42
    assert {seen.query["api-version"][0] for seen in service.seen} == {api_version}


@pytest.mark.parametrize("api_version", [ENVELOPE, FLAT])
async def test_stop_deletes_the_session_whatever_the_version(make: Make, service: ACAService, api_version: str) -> None:
    """D56."""
    executor = make(api_version=api_version)
    await run(executor, "1")
    assert len(service.sessions) == 1
    await executor.stop()
    assert service.sessions == {}
    assert asked(service)[-1] == ("DELETE", "session")


async def test_the_sessions_id_is_known_before_its_first_use(make: Make, service: ACAService) -> None:
    executor = make()
    ids = []
    for begin_afresh in (executor.restart, executor.stop):
        ids.append(executor._session_id)
        await run(executor, "1")
        assert list(service.sessions) == [executor._session_id] == ids[-1:]
        await begin_afresh()
    assert len({*ids, executor._session_id}) == 3
    assert make(session_id="mine")._session_id == "mine"
    executor = make()
    executor._session_id = "assigned"
    assert executor._session_id == "assigned"


async def test_stop_is_no_error_where_the_service_is_gone(
    make: Make, service: ACAService, caplog: pytest.LogCaptureFixture
) -> None:
    executor = make()
    await run(executor, "1")
    service.overrides.append(lambda seen: error(500, "Gone", "no") if seen.method == "DELETE" else None)
    await executor.stop()
    assert "could not be deleted" in caplog.text


@pytest.mark.parametrize("name", ["a b", "abc", "x" * 129, "tür1"])
async def test_an_identifier_that_the_service_would_not_take_is_refused_and_never_changed(
    make: Make, service: ACAService, name: str
) -> None:
    with pytest.raises(InvalidRequest, match="4 to 128 characters"):
        await make(session_id=name).start()
    assert service.seen == []


async def test_identifiers_and_names_arrive_as_they_are(make: Make, service: ACAService, tmp_path: Path) -> None:
    """D51."""
    names = ["user#1", "user#2", "a&api-version=x", "a%2Fb", "a/b?c=d+e"]
    (tmp_path / "a&b#c %41.txt").write_text("x")
    for name in names:
        executor = make(session_id=name)
        assert await run(executor, "1") == (0, "run 1\n")
        await executor.upload_files(["a&b#c %41.txt"])
        await executor.download_files(["a&b#c %41.txt"])
        await executor.stop()
    assert list(service.sessions) == names
    assert [list(session.files) for session in service.sessions.values()] == [["a&b#c %41.txt"]] * len(names)


async def test_random_identifiers_are_uuids_and_never_used_twice(make: Make, service: ACAService) -> None:
    executor = make()
    for _ in range(3):
        await run(executor, "1")
        await executor.restart()
    identifiers = {seen.query["identifier"][0] for seen in service.seen if seen.method == "POST"}
    assert len(identifiers) == 3
    assert {len(identifier) for identifier in identifiers} == {36}


@pytest.mark.parametrize("endpoint", ["https://evil.example/p", "http://r.dynamicsessions.io/p", "nonsense"])
async def test_a_token_goes_to_no_other_host(endpoint: str, service: ACAService, tmp_path: Path) -> None:
    tokens = Tokens(service)
    executor = ACADynamicSessionsCodeExecutor(endpoint, tokens, work_dir=tmp_path)
    with pytest.raises(InvalidRequest):
        await executor.start()
    assert tokens.given == []
    assert "s3cret" not in repr(executor)


async def test_a_session_that_is_over_is_gone_before_the_next_begins(make: Make, service: ACAService) -> None:
    """A pool may have no room for two."""
    ran_code, began, go_on = threading.Event(), threading.Event(), threading.Event()

    def held_up(seen: Seen) -> None:
        ran_code.set()
        if seen.method == "DELETE":
            began.set()
            assert go_on.wait(30)

    service.overrides.append(held_up)
    executor = make()
    leaving = asyncio.create_task(run(executor, "# sleep: 1"))
    assert await asyncio.to_thread(ran_code.wait, 30)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    following = asyncio.create_task(run(executor, "x"))
    assert await asyncio.to_thread(began.wait, 30)
    assert len(asked(service)) == 2
    go_on.set()
    assert (await following)[0] == 0
    assert asked(service)[1:] == [("DELETE", "session"), ("POST", "executions")]


async def test_one_run_at_a_time_is_sent_to_a_session(make: Make, service: ACAService) -> None:
    executor, running, most = make(), 0, 0

    def count(seen: Seen) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.05)
        running -= 1
        return ran("Succeeded")

    service.overrides.append(count)
    await asyncio.gather(*(run(executor, "1", "2") for _ in range(4)))
    assert most == 1


# --- tokens ---


async def test_tokens_are_renewed_before_they_end(make: Make, service: ACAService) -> None:
    """D48."""
    tokens = Tokens(service, life_seconds=2)  # renewed at half of it: a request has a second to arrive
    executor = make(tokens)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert (await run(executor, "1"))[0] == 0
    assert service.refused_tokens == 0
    assert 3 <= len(tokens.given) < 20


async def test_asynchronous_credentials_are_awaited(make: Make, service: ACAService) -> None:
    """D60."""
    assert await run(make(AsyncTokens(service)), "1") == (0, "run 1\n")


async def test_a_credential_that_blocks_does_not_hold_up_the_event_loop(make: Make, service: ACAService) -> None:
    """D60."""
    asked_for, go_on = threading.Event(), threading.Event()

    class Slow(Tokens):
        def get_token(self, *scopes: str, **options: Any) -> Any:
            asked_for.set()
            assert go_on.wait(30)
            return super().get_token(*scopes, **options)

    running = asyncio.create_task(run(make(Slow(service)), "1"))
    await asyncio.to_thread(asked_for.wait, 30)  # the loop is free to run this
    go_on.set()
    assert await running == (0, "run 1\n")


async def test_packages_can_be_asked_for_before_anything_else(make: Make, service: ACAService) -> None:
    """D53."""
    told = {
        "status": "Succeeded",
        "id": "e",
        "result": {"executionResult": "numpy\npandas\n", "stdout": "", "stderr": ""},
    }
    service.overrides.append(answering("/executions", Answer(200, told)))
    assert await make().get_available_packages() == {"numpy", "pandas"}


async def test_packages_that_cannot_be_told_are_an_error(make: Make, service: ACAService) -> None:
    service.overrides.append(answering("/executions", ran("Failed", stderr="NameError: no")))
    with pytest.raises(ValueError, match="Failed to get list of available packages: NameError: no"):
        await make().get_available_packages()


# --- answers ---


def ran(status: str, *, value: Any = "", stdout: str = "", stderr: str = "", duration_ms: int = 1) -> Answer:
    result = {
        "stdout": stdout, "stderr": stderr, "executionResult": value, "executionTimeInMilliseconds": duration_ms
    }  # fmt: skip
    return Answer(200, {"id": "e", "status": status, "result": result})


@pytest.mark.parametrize(
    ("value", "shown"),
    [("", ""), (None, ""), (2, "2"), (True, "True"), (0.5, "0.5"), ("text", "text"), ("[1,\n 2]", "[1,\n 2]")],
)
async def test_a_value_follows_what_was_printed_and_no_value_is_no_word(
    make: Make, service: ACAService, value: Any, shown: str
) -> None:
    """D49."""
    service.overrides.append(answering("/executions", ran("Succeeded", value=value, stdout="hello\n")))
    assert await run(make(), "1") == (0, f"hello\n{shown}")


@pytest.mark.parametrize("base64_data", ["iVBORw0KGgo=" * 5000, "A" * 50_001])
async def test_no_base64_is_in_the_output(make: Make, service: ACAService, base64_data: str) -> None:
    """D50."""
    value = {"type": "image", "format": "png", "base64_data": base64_data}
    service.overrides.append(answering("/executions", ran("Succeeded", value=value)))
    result = await make().execute_code_blocks(python("1"))
    assert result.exit_code == 0
    assert len(result.output) < 500


VARIABLES = "the session's variables were"
TIMED_OUT = "request timed out waiting for code execution to complete"


@pytest.mark.parametrize(
    "timeout", [{"stderr": TIMED_OUT}, {"stderr": "", "duration_ms": 60_000}], ids=["in words", "by its time"]
)
@pytest.mark.parametrize(("same", "kept"), [(True, "kept"), ("True", "kept"), (False, "lost")])
async def test_a_run_that_took_too_long_is_a_result_and_says_what_became_of_the_session(
    make: Make, service: ACAService, timeout: dict[str, Any], same: Any, kept: str
) -> None:
    """D55."""
    executor = make()
    answers = [ran("Succeeded", stdout="1\n"), ran("Failed", stdout="2\n", **timeout), ran("Succeeded", value=same)]
    service.overrides.append(answering("/executions", *answers))
    exit_code, output = await run(executor, "a", "b", "c")
    assert exit_code == 124
    assert output.startswith("1\n2\n")
    assert output.endswith(
        f"Timeout: the code ran longer than its time limit of 60 s; the session's variables were {kept}"
    )
    assert (await run(executor, "d"))[0] == 0


async def test_a_session_that_does_not_answer_after_a_time_limit_is_deleted(
    make: Make, service: ACAService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_session, "QUESTION_SECONDS", 0.1)
    monkeypatch.setattr(pool_session, "CHECK_SETUP_CODE", "# sleep: 2")
    executor = make()
    service.overrides.append(answering("/executions", ran("Failed", stderr=TIMED_OUT)))
    exit_code, output = await run(executor, "a")
    assert (exit_code, output.endswith("the session's variables were lost")) == (124, True)
    first = service.seen[0].query["identifier"]
    assert await run(executor, "b") == (0, "run 1\n")
    assert [seen.query["identifier"] for seen in service.seen if seen.method == "DELETE"] == [first]


async def test_a_process_that_was_killed_is_said(make: Make, service: ACAService) -> None:
    executor = make()
    service.overrides.append(answering("/executions", ran("Failed", stderr="Execution aborted"), ran("Succeeded")))
    exit_code, output = await run(executor, "a", "b")
    assert exit_code == 1
    assert output.startswith("Execution aborted\nLost: the session's kernel has ended. A fresh session was started")


@pytest.mark.parametrize("last_line", ["done", "ValueError: written by the code", "note: x"])
async def test_line_like_an_exceptions_is_no_exception_and_the_session_is_checked(
    make: Make, service: ACAService, last_line: str
) -> None:
    executor = make()
    answers = [ran("Failed", stderr=f"before\n{last_line}\n"), ran("Succeeded", value=False)]
    service.overrides.append(answering("/executions", *answers))
    exit_code, output = await run(executor, "a", "b")
    assert exit_code == 1
    assert f"{last_line}\nLost: the session's kernel has ended." in output
    assert len([seen for seen in service.seen if seen.path.endswith("/executions")]) == 2


@pytest.mark.parametrize(
    ("stderr", "name"),
    [
        (
            "---\nZeroDivisionError   Traceback (most recent call last)\n1 / 0\nZeroDivisionError: x",
            "ZeroDivisionError",
        ),
        ("A    Traceback (most recent call last)\n\nA: a message\nof two lines", "Error"),
        ("  Cell In[1], line 1\n    x =\n       ^\nSyntaxError: invalid syntax", "SyntaxError"),
        ("\x1b[31mIndentationError\x1b[39m: unexpected indent", "IndentationError"),
        (
            "UserWarning: exit\nAn exception has occurred, use %tb to see the full traceback.\n\nSystemExit: 3",
            "SystemExit",
        ),
        ("UsageError: Line magic function `%nope` not found.\n", "UsageError"),
    ],
)
def test_exceptions_as_ipython_shows_them_are_recognized(stderr: str, name: str) -> None:
    found = error_of(RunResult(RunStatus.FAILED, stderr=stderr))
    assert found is not None
    assert found.name == name
    assert error_of(RunResult(RunStatus.SUCCEEDED, stderr=stderr)) is None


def test_execution_lasts_as_long_as_the_service_says() -> None:
    execution = execution_of(RunResult(RunStatus.SUCCEEDED, duration_ms=1500), "x")
    assert (run_seconds(execution), execution.created_at) == (1.5, execution.started_at)
    for nonsense in (-1, 10**30):
        execution_of(RunResult(RunStatus.SUCCEEDED, duration_ms=nonsense), "x")


async def test_an_answer_that_never_comes_is_a_result_and_the_code_is_not_run_twice(
    make: Make, service: ACAService
) -> None:
    executor = make(timeout=1)
    await executor.start()
    object.__setattr__(executor._sessions.open()._operations.transport.times, "grace_seconds", 0.2)
    exit_code, output = await run(executor, "# sleep: 3", "after")
    assert exit_code == 1
    assert output.startswith("Lost: the code may have run")
    assert service.markers["after"] == 0
    assert await run(executor, "next") == (0, "run 1\n")
    assert sum(count for code, count in service.markers.items() if "sleep" in code) == 1
    assert ("DELETE", "session") in asked(service)


# --- refusals ---


async def test_the_pool_is_asked_again_where_it_has_no_room(make: Make, service: ACAService) -> None:
    """D59."""
    service.overrides.append(answering("/executions", *[error(429, "TooMany", "later")] * 3))
    assert await run(make(), "x") == (0, "run 1\n")
    assert len(service.seen) == 4


async def test_connections_are_kept(make: Make, service: ACAService, monkeypatch: pytest.MonkeyPatch) -> None:
    """D59."""
    accepted, get_request = [], service.get_request

    def accept() -> Any:
        accepted.append(get_request())
        return accepted[-1]

    monkeypatch.setattr(service, "get_request", accept)
    executor = make()
    for _ in range(5):
        await run(executor, "x")
        await executor.get_file_list()
    assert len(accepted) == 1


async def test_a_missing_role_is_named(make: Make, service: ACAService) -> None:
    """D59."""
    service.overrides.append(answering("/executions", error(403, "Forbidden", "said by the service")))
    with pytest.raises(Forbidden, match=r"Azure ContainerApps Session Executor(.|\n)*said by the service"):
        await run(make(), "x")


async def test_a_token_that_is_not_accepted_is_named_without_showing_it(make: Make, service: ACAService) -> None:
    class Unknown(Tokens):
        def get_token(self, *scopes: str, **options: Any) -> Any:
            return AccessToken("s3cret-unknown", time.time() + 3600)

    with pytest.raises(Unauthenticated, match=r"scope https://dynamicsessions\.io") as raised:
        await run(make(Unknown(service)), "x")
    assert "s3cret" not in str(raised.value)


async def test_code_that_the_service_refuses_is_a_result(make: Make, service: ACAService) -> None:
    service.overrides.append(answering("/executions", error(400, "SomethingElse", "too long")))
    exit_code, output = await run(make(), "x")
    assert exit_code == 1
    assert output.startswith("Not run: HTTP 400 (SomethingElse)")


async def test_a_wrong_version_is_for_the_developer_and_not_for_the_model(make: Make, service: ACAService) -> None:
    """D58."""
    service.overrides.append(answering("/executions", error(400, "SessionPropertiesMissing", "no")))
    with pytest.raises(PropertiesMissing, match="another api-version"):
        await run(make(), "x")
    with pytest.raises(InvalidRequest, match="unknown api-version"):
        await make(api_version="2020-01-01").start()


async def test_files_that_cannot_be_saved_do_not_cost_the_output(make: Make, service: ACAService) -> None:
    executor = make(save_files=True)
    service.overrides.append(answering("/files", error(400, "Broken", "no list")))
    exit_code, output = await run(executor, "x")
    assert exit_code == 0
    assert output.startswith("run 1\nFiles are not saved: HTTP 400")


@pytest.mark.parametrize("name", ["../../out.txt", "/etc/out.txt", "a/../../b"])
async def test_no_name_of_a_file_leads_out_of_the_directory(
    make: Make, service: ACAService, tmp_path: Path, name: str
) -> None:
    work = tmp_path / "work"
    executor = make(save_files=True, work_dir=work)
    listing = {"value": [{"name": name, "type": "file", "sizeInBytes": 1, "lastModifiedAt": "x"}]}
    service.overrides.append(answering("/files", Answer(200, listing)))
    exit_code, output = await run(executor, "x")
    assert exit_code == 0
    assert "is not saved" in output
    assert list(tmp_path.rglob("*.txt")) == []


async def test_what_code_writes_is_saved_up_to_a_limit(make: Make, service: ACAService, tmp_path: Path) -> None:
    executor = make(save_files=True)
    entry = {"type": "file", "lastModifiedAt": "x"}
    listing = {"value": [{**entry, "name": f"{n:03}.txt", "sizeInBytes": 1} for n in range(150)]}
    service.overrides.append(answering("/files", Answer(200, listing)))
    service.overrides.append(lambda seen: Answer(200, b"x") if seen.path.endswith("/content") else None)
    result = await executor.execute_code_blocks(python("x"))
    assert len(list(tmp_path.glob("*.txt"))) == 100
    note = result.output.rpartition("\n")[2]
    assert note.startswith("Files are not saved: '100.txt' (1 bytes), '101.txt' (1 bytes), ")
    assert note.endswith("40 more; after one call, at most 100 files with 268,435,456 bytes together are")


async def test_large_file_is_skipped_and_files_after_it_are_saved(
    make: Make, service: ACAService, tmp_path: Path
) -> None:
    executor = make(save_files=True)
    entry = {"type": "file", "lastModifiedAt": "x"}
    sizes = {"a.txt": 1, "b.bin": executor_files.MAX_SAVED_BYTES, "c.txt": 1}
    listing = {"value": [{**entry, "name": name, "sizeInBytes": size} for name, size in sizes.items()]}
    service.overrides.append(answering("/files", Answer(200, listing)))
    service.overrides.append(lambda seen: Answer(200, b"x") if seen.path.endswith("/content") else None)
    result = await executor.execute_code_blocks(python("x"))
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "c.txt"}
    assert "Files are not saved: 'b.bin' (268,435,456 bytes); after one call" in result.output


async def test_upload_while_code_runs_is_not_saved_as_the_codes_own(
    make: Make, service: ACAService, tmp_path: Path
) -> None:
    saved_to = tmp_path / "saved"
    executor = make(save_files=True, output_dir=saved_to)
    (tmp_path / "mine.txt").write_text("x")
    running = asyncio.ensure_future(executor.execute_code_blocks(python("# sleep: 1")))
    await until(lambda: service.markers)
    await executor.upload_files(["mine.txt"])
    result = await running
    assert list(saved_to.iterdir()) == []
    assert result.output.endswith("Files are not saved: others were uploaded at the same time")
