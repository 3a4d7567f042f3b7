"""From what a run in an ACA session answers to an execution, as the other executors have them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from ...models import ErrorInfo, Execution, ExecutionState
from ...models.plain_text import strip_ansi
from ..protocol.run_results import RunResult, RunStatus, bundle_of, image_of
from .session_code import without_enter

# What stands last where Python raised an exception: `ZeroDivisionError: division by zero`.
_ERROR_LINE = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
# What Azure says of a run that took too long, as far as that has been published.
_TIMED_OUT = re.compile(r"request timed out waiting for code execution", re.IGNORECASE)


def timed_out(result: RunResult, timeout_seconds: float) -> bool:
    """Whether a run was ended by the service for its time."""
    if result.ok:
        return False
    last = result.stderr.rstrip().rpartition("\n")[2]
    return _TIMED_OUT.search(last) is not None or result.duration_ms >= timeout_seconds * 1000


def error_of(result: RunResult) -> ErrorInfo | None:
    """Return the exception that ended a run; None if none did, or it ended for another reason, such as a kill."""
    text = strip_ansi(result.stderr).rstrip()
    match = _ERROR_LINE.fullmatch(text.rpartition("\n")[2].strip())
    # An exception's message may have several lines: then its traceback tells.
    if result.ok or (match is None and "Traceback (most recent call last)" not in text):
        return None
    return ErrorInfo(match[1], match[2] or "", text) if match is not None else ErrorInfo("Error", "", text)


def execution_of(
    result: RunResult,
    code: str,
    *,
    with_value: bool = True,
    state: ExecutionState | None = None,
    reason: str | None = None,
    state_preserved: bool | None = None,
) -> Execution:
    """Return a run as an execution.

    The service keeps stdout and stderr apart and does not say how they were mixed: what was printed comes first, then
    stderr, which ends with the traceback of an error, then the value.

    Parameters
    ----------
    with_value : bool
        Whether the value of the last expression is among the outputs.
    state : ExecutionState, optional
        Where it is another one than the service's word for it says.
    reason, state_preserved
        As in `Execution`.
    """
    stdout, stderr = strip_ansi(result.stdout), without_enter(strip_ansi(result.stderr))
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": name, "text": text}
        for name, text in (("stdout", stdout), ("stderr", stderr))
        if text
    ]
    bundle = _shown(result.value) if with_value else None
    if bundle is not None:
        outputs.append({"output_type": "execute_result", "execution_count": None, "data": bundle, "metadata": {}})
    return Execution(
        id=result.id,
        session_id=result.identifier,
        state=state or _state_of(result),
        code=code,
        created_at=datetime.now(timezone.utc).isoformat(),
        stdout=stdout,
        stderr=stderr,
        outputs=outputs,
        error=error_of(result),
        reason=reason,
        session_state_preserved=state_preserved,
    )


def _state_of(result: RunResult) -> ExecutionState:
    if result.ok:
        return ExecutionState.OK
    return ExecutionState.CANCELLED if result.status is RunStatus.CANCELED else ExecutionState.ERROR


def _shown(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict) and "base64_data" in value and image_of(value) is None:
        return {"text/plain": "[a picture that cannot be decoded]"}  # its base64 is nothing for a model
    return bundle_of(value)
