"""Executions of ours as results of runs: what of an execution goes where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jupyter_exec_ext.aca.endpoint.run_handlers import metadata_of, result_of
from jupyter_exec_ext.aca.protocol.file_format import ACAFile, file_of, files_in
from jupyter_exec_ext.aca.protocol.run_format import RunRequest, RunStatus
from jupyter_exec_ext.aca.protocol.session_format import PAGE, metadata_to_json, page_of, session_to_json
from jupyter_exec_ext.models import (
    ErrorInfo,
    Execution,
    ExecutionState,
    FileInfo,
    KernelSpecInfo,
    Session,
    SessionState,
)
from jupyter_exec_ext.protocol.records_json import seconds_of, utc_timestamp

START, END = "2026-01-02T03:04:05.000Z", "2026-01-02T03:04:06.500Z"


def execution(state: ExecutionState = ExecutionState.OK, **fields: Any) -> Execution:
    return Execution("exe_1", "ses_1", state, "code", START, started_at=START, finished_at=END, **fields)


def stream(text: Any, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(kind: str = "display_data", **data: Any) -> dict[str, Any]:
    return {"output_type": kind, "data": {name.replace("_", "/"): value for name, value in data.items()}}


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (ExecutionState.AWAITING_APPROVAL, RunStatus.NOT_STARTED),
        (ExecutionState.QUEUED, RunStatus.NOT_STARTED),
        (ExecutionState.RUNNING, RunStatus.RUNNING),
        (ExecutionState.OK, RunStatus.SUCCEEDED),
        (ExecutionState.CANCELLED, RunStatus.CANCELED),
    ],
)
def test_a_state_has_its_word(state: ExecutionState, status: RunStatus) -> None:
    assert result_of(execution(state), "abcd").status is status


FAILED = [state for state in ExecutionState if state.finished]
FAILED = [state for state in FAILED if state not in (ExecutionState.OK, ExecutionState.CANCELLED)]


@pytest.mark.parametrize("state", FAILED)
@pytest.mark.parametrize("reason", ["because", None])
def test_every_other_end_is_a_failure_that_says_why(state: ExecutionState, reason: str | None) -> None:
    result = result_of(execution(state, reason=reason), "abcd")
    assert result.status is RunStatus.FAILED
    assert result.stderr and (reason or "") in result.stderr


def test_an_error_is_told_by_its_traceback_or_else_by_its_name() -> None:
    for traceback, told in (("the traceback", "the traceback"), ("", "ValueError: bad")):
        error = ErrorInfo("ValueError", "bad", traceback)
        result = result_of(execution(ExecutionState.ERROR, error=error, stderr="before\n"), "abcd")
        assert result.stderr == f"before\n{told}"


def test_a_run_that_goes_on_tells_nothing_yet() -> None:
    result = result_of(execution(ExecutionState.RUNNING, outputs=[stream("x")]), "abcd")
    assert (result.stdout, result.value, result.duration_ms) == ("", "", 0)


@pytest.mark.parametrize(
    ("outputs", "stdout", "value"),
    [
        ([stream("a"), shown(text_plain="b"), stream("c\n")], "ab\nc\n", ""),
        ([stream(["a\n", "b"])], "a\nb", ""),
        ([stream("a", "stderr")], "", ""),
        ([shown("execute_result", text_plain="1")], "", 1),
        ([shown("execute_result", text_plain=["[1,\n", " 2]"])], "", "[1,\n 2]"),
        ([shown(image_png="QQ==", text_plain="f"), shown("execute_result", text_plain="1")], "", "QQ=="),
        ([shown(image_png="QQ=="), shown(image_png="Qg==")], "", "Qg=="),
        ([shown(image_png="QQ=="), shown("execute_result", image_png="Qg==", text_plain="f")], "", "Qg=="),
        ([shown(text_html="<b>")], "<b>\n", ""),
        ([shown(audio_wav="UklGRg==")], "[audio/wav, 4 bytes, not shown]\n", ""),
        ([shown("execute_result", text_html="<b>")], "", "<b>"),
    ],
)
def test_what_was_shown_goes_to_stdout_or_is_the_value(outputs: list[dict[str, Any]], stdout: str, value: Any) -> None:
    result = result_of(execution(outputs=outputs), "abcd")
    told = result.value["base64_data"] if isinstance(result.value, dict) else result.value
    assert (result.stdout, told, result.duration_ms) == (stdout, value, 1500)


def test_what_was_asked_for_is_kept_with_the_execution() -> None:
    request = RunRequest("1", asynchronous=True, jupyter_format=True)
    kept = metadata_of(request, "2025-10-02-preview")
    outputs = [stream("x" * 5000), shown("execute_result", text_plain="'a'")]
    result = result_of(execution(outputs=outputs, metadata=kept), "abcd")
    assert (result.asynchronous, result.value, len(result.stdout)) == (True, "'a'", 4096)


@pytest.mark.parametrize(
    ("api_version", "asked", "length"),
    [
        ("2025-10-02-preview", None, 4096),
        ("2025-10-02-preview", 9000, 5000),
        ("2025-10-02-preview", 3, 3),
        ("2025-02-02-preview", None, 5000),
        ("2025-02-02-preview", 100, 100),
        (None, None, 5000),
    ],
)
def test_streams_are_as_long_as_the_version_and_the_request_say(
    api_version: str | None, asked: int | None, length: int
) -> None:
    kept = metadata_of(RunRequest("1", streams_max_length=asked), api_version)
    result = result_of(execution(outputs=[stream("ä" * 5000)], stderr="ö" * 5000, metadata=kept), "abcd")
    assert (len(result.stdout), len(result.stderr)) == (length, length)


@pytest.mark.parametrize("metadata", [{"aca": None}, {"aca": {"streams_max_length": "x", "jupyter_format": 1}}, {}])
def test_metadata_of_other_requests_mean_nothing(metadata: dict[str, Any]) -> None:
    outputs = [stream("x" * 9000), shown("execute_result", text_plain="'a'")]
    result = result_of(execution(outputs=outputs, metadata=metadata), "abcd")
    assert (len(result.stdout), result.value) == (9000, "a")


# --- files and sessions ---


def info(path: str, mtime: str = START) -> FileInfo:
    return FileInfo(path, 7, mtime, "text/plain")


def test_a_file_has_seven_digits_of_a_second_and_says_how_its_text_is_written() -> None:
    file = file_of(info("dir/a.txt"))
    assert file == ACAFile("dir/a.txt", 7, "2026-01-02T03:04:05.0000000Z", "text/plain; charset=utf-8")
    assert file_of(FileInfo("a", 1, START, "image/png")).content_type == "image/png"


def test_a_directory_is_listed_once_with_its_newest_time() -> None:
    files: Iterable[FileInfo] = [info("a"), info("d/x"), info("d/e/y", END), info("z")]
    found = files_in(files, "")
    assert [(file.path, file.is_directory) for file in found] == [("a", False), ("d", True), ("z", False)]
    assert found[1].last_modified == "2026-01-02T03:04:06.5000000Z"
    below = files_in([info("d/x"), info("d/e/y")], "d")
    assert [(file.path, file.is_directory) for file in below] == [("d/x", False), ("d/e", True)]


def test_a_session_expires_when_its_idle_time_is_over() -> None:
    def session(state: SessionState, idle: float) -> Session:
        return Session("ses_1", "owner", "k", "python", state, START, START, idle_timeout_seconds=idle)

    now = seconds_of(END)
    told = session_to_json("abcd", session(SessionState.IDLE, 60), now)
    assert (told["lastAccessedAt"], told["expireAt"]) == (START, "2026-01-02T03:05:05.000Z")
    assert session_to_json("abcd", session(SessionState.BUSY, 60), now)["lastAccessedAt"] == END
    assert session_to_json("abcd", session(SessionState.IDLE, 0), now, expiry="expiresAt")["expiresAt"] is None
    soon = session_to_json("abcd", session(SessionState.IDLE, 60), now, 1)
    assert soon["expireAt"] == utc_timestamp(seconds_of(soon["createdAt"]) + 1)


def test_a_long_list_comes_in_pages() -> None:
    items = [{"number": number} for number in range(2 * PAGE + 1)]
    seen: list[dict[str, int]] = []
    skip: int | None = 0
    while skip is not None:
        page, skip = page_of(items, skip)
        assert len(page) <= PAGE
        seen += page
    assert seen == items


def test_a_pool_tells_its_languages_once() -> None:
    kernels = [KernelSpecInfo("a", "A", "python"), KernelSpecInfo("b", "B", "python"), KernelSpecInfo("c", "C", "R")]
    told = metadata_to_json("b", kernels)
    assert told["runtimes"] == [{"name": "python"}, {"name": "R"}]
    assert told["jupyterKernel"] == {"name": "b", "description": "B"}
    assert metadata_to_json("none", [])["jupyterKernel"] is None
