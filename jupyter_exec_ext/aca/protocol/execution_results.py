"""An execution of ours as the result of an ACA run."""

from __future__ import annotations

from typing import Any

from ...models import Execution, ExecutionState
from ...models.mime_bundles import pieces_of_bundle
from ...models.model_content import joined, named
from ...protocol.records_json import seconds_of
from .run_requests import RunRequest
from .run_results import RunResult, RunStatus, value_of

DEFAULT_STREAMS_LENGTH = 4096
_SHORT_STREAMS_SINCE = "2025-10-02-preview"
_METADATA = "aca"
_PNG, _TEXT = "image/png", "text/plain"
_OPEN = {
    ExecutionState.AWAITING_APPROVAL: RunStatus.NOT_STARTED,
    ExecutionState.QUEUED: RunStatus.NOT_STARTED,
    ExecutionState.RUNNING: RunStatus.RUNNING,
    ExecutionState.OK: RunStatus.SUCCEEDED,
    ExecutionState.CANCELLED: RunStatus.CANCELED,
}
_ABORTED = (ExecutionState.KERNEL_DIED, ExecutionState.OOM_KILLED)


def metadata_of(request: RunRequest, api_version: str | None) -> dict[str, Any]:
    """Return what an execution's record has to keep of the request, so that its result can be told at any time.

    Parameters
    ----------
    api_version : str or None
        None on paths of the envelope family, where nothing is cut.
    """
    length = request.streams_max_length
    if length is None and api_version is not None and api_version >= _SHORT_STREAMS_SINCE:
        length = DEFAULT_STREAMS_LENGTH
    kept = {
        "asynchronous": request.asynchronous,
        "jupyter_format": request.jupyter_format,
        "streams_max_length": length,
    }
    return {_METADATA: kept}


def result_of(execution: Execution, identifier: str) -> RunResult:
    """Return how a run stands, and what came of it once it has ended."""
    options = execution.metadata.get(_METADATA)
    options = options if isinstance(options, dict) else {}
    status = _OPEN.get(execution.state, RunStatus.FAILED)
    asynchronous = options.get("asynchronous") is True
    if not status.finished:
        return RunResult(status, id=execution.id, identifier=identifier, asynchronous=asynchronous)
    stdout, value_text, png = _shown(execution)
    length = options.get("streams_max_length")
    return RunResult(
        status=status,
        stdout=_limited(stdout, length),
        stderr=_limited(execution.stderr + _why_it_failed(execution), length),
        value=value_of(value_text, png, jupyter_format=options.get("jupyter_format") is True),
        duration_ms=_duration_ms(execution),
        id=execution.id,
        identifier=identifier,
        asynchronous=asynchronous,
    )


def _shown(execution: Execution) -> tuple[str, str | None, str | None]:
    """Return what was printed, the text of the value, and the picture that stands for it.

    The protocol has no place for what is displayed and is no picture. Its text goes where a terminal would show it.
    """
    printed: list[str] = []
    text = own = displayed = None
    for output in execution.outputs:
        kind, data = output.get("output_type"), output.get("data", {})
        if kind == "stream" and output.get("name") == "stdout":
            printed.append(_joined(output.get("text")))
        elif kind == "execute_result":
            text, own = _text_of(data), _picture(data)
        elif kind == "display_data":
            picture = _picture(data)
            displayed = picture or displayed
            if picture is None and data:
                printed.append(_text_of(data) + "\n")
    return "".join(printed), text, own or displayed


def _text_of(data: dict[str, Any]) -> str:
    """Return the ``text/plain`` of a value, or else the text that stands for it."""
    if _TEXT in data or _PNG in data:
        return _joined(data.get(_TEXT))
    return joined(map(named, pieces_of_bundle(data, None)))


def _picture(data: dict[str, Any]) -> str | None:
    return _joined(data.get(_PNG)) or None


def _why_it_failed(execution: Execution) -> str:
    state, error, reason = execution.state, execution.error, execution.reason or ""
    if state is ExecutionState.OK:
        return ""
    if state is ExecutionState.ERROR and error is not None:
        return error.traceback or f"{error.name}: {error.value}"
    if state is ExecutionState.TIMEOUT:
        return f"The request timed out waiting for code execution to complete: {reason}"
    return f"Execution aborted: {reason}" if state in _ABORTED else reason or f"The run ended as {state}"


def _limited(text: str, max_length: Any) -> str:
    """Return head and tail of a text that is too long, with a note between them of what is missing."""
    if not isinstance(max_length, int) or len(text) <= max_length:
        return text
    marker = f"\n[{len(text)} characters, shortened to {max_length}]\n"
    kept = max_length - len(marker)
    if kept < 2:
        return text[:max_length]
    return text[: kept - kept // 2] + marker + text[len(text) - kept // 2 :]


def _duration_ms(execution: Execution) -> int:
    if execution.started_at is None or execution.finished_at is None:
        return 0
    return max(0, round(1000 * (seconds_of(execution.finished_at) - seconds_of(execution.started_at))))


def _joined(text: Any) -> str:
    if isinstance(text, list):  # nbformat has lines, too
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
