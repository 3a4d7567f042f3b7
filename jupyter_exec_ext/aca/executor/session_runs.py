"""Code that an executor runs in an ACA session beside the user's, and results of runs as executions. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from ...models import ErrorInfo, Execution, ExecutionState
from ...models.plain_text import strip_ansi
from ..protocol.addresses import DATA_DIRECTORY
from ..protocol.run_format import RunResult, RunStatus, bundle_of, image_of

_MARK = "_aca_session_entered"
#: Enters the directory for files, once in a kernel, if it exists. One statement, which shows nothing and defines no
#: name: it stands above the first code of a session, so that it costs no request.
ENTER = (
    f'exec("import os, sys\\nif not hasattr(sys, {_MARK!r}):\\n sys.{_MARK} = True\\n'
    f' if os.path.isdir({DATA_DIRECTORY!r}): os.chdir({DATA_DIRECTORY!r})", {{}})'
)
#: Its value is true in a kernel in which `ENTER` has run.
ASK_ENTERED = f'hasattr(__import__("sys"), {_MARK!r})'
#: Its value is a text with one package name a line. Printed text would be shortened by the service.
ASK_PACKAGES = (
    r'"\n".join(sorted({d.metadata["Name"] for d in __import__("importlib.metadata").metadata.distributions()'
    r' if d.metadata["Name"]}))'
)
# Code that changes its meaning below another line: cell magics, pasted prompts, code that is indented as a whole.
_NEEDS_FIRST_LINE = re.compile(r"\s*(?:%%|>>>|In ?\[)|(?:[ \t]*\r?\n)*[ \t]+\S")
# The last line of a Python traceback: `ZeroDivisionError: division by zero`.
_ERROR_LINE = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
# Azure's published message for a run that exceeded its time limit.
_TIMED_OUT = re.compile(r"request timed out waiting for code execution", re.IGNORECASE)


def prepend_enter(code: str) -> str | None:
    """Return code with `ENTER` above it; None if `ENTER` has to be sent separately."""
    return None if _NEEDS_FIRST_LINE.match(code) else f"{ENTER}\n{code}"


def is_true(value: object) -> bool:
    """Return whether a value is ``True``, which some versions of the service give as text."""
    return value is True or value == "True"


def lines_of(value: object) -> set[str]:
    """Return the lines of a text value, which some versions of the service give quoted, as IPython shows it."""
    text = value if isinstance(value, str) else ""
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1].replace("\\n", "\n")
    return set(text.split())


def has_timed_out(result: RunResult, timeout_seconds: float) -> bool:
    """Return whether the service stopped a run at its time limit."""
    if result.ok:
        return False
    last = result.stderr.rstrip().rpartition("\n")[2]
    # The service may use other words, so the run time counts, too.
    return _TIMED_OUT.search(last) is not None or result.duration_ms >= timeout_seconds * 1000


def error_of(result: RunResult) -> ErrorInfo | None:
    """Return the exception that ended a run; None if it ended without one, such as by a kill."""
    text = strip_ansi(result.stderr).rstrip()
    match = _ERROR_LINE.fullmatch(text.rpartition("\n")[2].strip())
    # The message of an exception may have several lines; then only the traceback shows that there was one.
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

    The service does not say how stdout and stderr were mixed. Printed text comes first, then stderr, which ends with
    the traceback of an error, then the value.

    Parameters
    ----------
    with_value : bool
        Whether to include the value of the last expression in the outputs.
    state : ExecutionState, optional
        If it differs from the one in the service's answer.
    reason, state_preserved
        As in `Execution`.
    """
    stdout = strip_ansi(result.stdout)
    # The line of `ENTER` in a traceback is not the user's.
    stderr = "".join(line for line in strip_ansi(result.stderr).splitlines(keepends=True) if ENTER not in line)
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": name, "text": text}
        for name, text in (("stdout", stdout), ("stderr", stderr))
        if text
    ]
    bundle = _bundle_of_value(result.value) if with_value else None
    if bundle is not None:
        outputs.append({"output_type": "execute_result", "execution_count": None, "data": bundle, "metadata": {}})
    if state is None:
        failure = ExecutionState.CANCELLED if result.status is RunStatus.CANCELED else ExecutionState.ERROR
        state = ExecutionState.OK if result.ok else failure
    return Execution(
        id=result.id,
        session_id=result.identifier,
        state=state,
        code=code,
        created_at=datetime.now(timezone.utc).isoformat(),
        stdout=stdout,
        stderr=stderr,
        outputs=outputs,
        error=error_of(result),
        reason=reason,
        session_state_preserved=state_preserved,
    )


def _bundle_of_value(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict) and "base64_data" in value and image_of(value) is None:
        return {"text/plain": "[a picture that cannot be decoded]"}  # a model can do nothing with its base64
    return bundle_of(value)
