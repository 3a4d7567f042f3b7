"""Code that an executor runs in an ACA session beside the user's, and results of runs as executions. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

from ...models import ErrorInfo, Execution, ExecutionState
from ...models.plain_text import strip_ansi
from ..protocol.addresses import DATA_DIRECTORY
from ..protocol.run_format import RunResult, RunStatus, bundle_of, image_of

_MARK = "_aca_session_entered"
#: Sets a kernel up, once: enters the directory for files, if it exists. One statement, which shows nothing and defines
#: no name: it stands above the first code of a session, so that it costs no request.
SETUP_CODE = (
    f'exec("import os, sys\\nif not hasattr(sys, {_MARK!r}):\\n sys.{_MARK} = True\\n'
    f' if os.path.isdir({DATA_DIRECTORY!r}): os.chdir({DATA_DIRECTORY!r})", {{}})'
)
#: Its value is true in a kernel in which `SETUP_CODE` has run.
CHECK_SETUP_CODE = f'hasattr(__import__("sys"), {_MARK!r})'
#: Its value is a text with one package name a line. Printed text would be shortened by the service.
PACKAGE_NAMES_CODE = (
    r'"\n".join(sorted({d.metadata["Name"] for d in __import__("importlib.metadata").metadata.distributions()'
    r' if d.metadata["Name"]}))'
)
# Code that changes its meaning below another line: cell magics, pasted prompts, code that is indented as a whole.
_NEEDS_FIRST_LINE = re.compile(r"\s*(?:%%|>>>|In ?\[)|(?:[ \t]*\r?\n)*[ \t]+\S")
#: These errors end a run before its first line.
SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
# The last line of a Python traceback: `ZeroDivisionError: division by zero`.
_ERROR_LINE = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
# The first line of an exception as IPython shows it; the second form is for SystemExit.
_ERROR_HEADERS = ("Traceback (most recent call last)", "An exception has occurred, use %tb")
# IPython (9.18) shows these without a header. A `UsageError` is a mistake in a magic command.
_ERRORS_WITHOUT_HEADER = (*SYNTAX_ERRORS, "UsageError")
_MAX_DURATION_MS = 24 * 60 * 60 * 1000
# Azure's published message for a run that exceeded its time limit.
_TIMED_OUT = re.compile(r"request timed out waiting for code execution", re.IGNORECASE)


def prepend_setup_code(code: str) -> str | None:
    """Return code with `SETUP_CODE` above it; None if `SETUP_CODE` has to be sent separately."""
    return None if _NEEDS_FIRST_LINE.match(code) else f"{SETUP_CODE}\n{code}"


def is_true(value: object) -> bool:
    """Return whether a value is ``True``, which some versions of the service give as text."""
    return value is True or value == "True"


def parse_package_names(value: object) -> set[str]:
    """Return the names in the value of `PACKAGE_NAMES_CODE`, which some versions of the service give quoted."""
    text = value if isinstance(value, str) else ""
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1].replace("\\n", "\n")
    return {line.strip() for line in text.splitlines()} - {""}


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
    # Code can print a line that looks like an exception's and end its process then, so the last line is not enough.
    has_header = any(header in text for header in _ERROR_HEADERS)
    if result.ok or not (has_header or (match is not None and match[1] in _ERRORS_WITHOUT_HEADER)):
        return None
    # The message of an exception may have several lines, so that the last one has no name.
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
    # The line of `SETUP_CODE` in a traceback is not the user's.
    stderr = "".join(line for line in strip_ansi(result.stderr).splitlines(keepends=True) if SETUP_CODE not in line)
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
    # The service gives the run time only, and it has answered just now. A nonsensical time must not be an error here.
    finished_at = datetime.now(timezone.utc)
    duration = timedelta(milliseconds=min(max(0, result.duration_ms), _MAX_DURATION_MS))
    started_at = (finished_at - duration).isoformat()
    return Execution(
        id=result.id,
        session_id=result.identifier,
        state=state,
        code=code,
        created_at=started_at,
        started_at=started_at,
        finished_at=finished_at.isoformat(),
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
