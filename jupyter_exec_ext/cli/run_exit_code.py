"""Exit code of ``jupyter exec run``, from the state and the error of a finished execution."""

from __future__ import annotations

import re
import signal
import sys

from ..models import Execution, ExecutionState
from ..protocol.languages import normalize_language
from .exit_codes import EXIT_INTERRUPTED, EXIT_REJECTED, EXIT_SERVER_FAILED, EXIT_TIMEOUT

_SHELLS = ("bash", "sh")
_SHELL_EXIT = re.compile(r"Command '.*' returned non-zero exit status (\d{1,3})\.", re.DOTALL)
# Longer numbers are texts: Python neither writes nor reads them.
_EXIT_NUMBER = re.compile(r"-?[0-9]{1,4300}")


def exit_code(execution: Execution) -> int:
    """Return the exit code of a finished execution; see the command's help."""
    if execution.state is ExecutionState.OK:
        return 0
    if execution.state is ExecutionState.TIMEOUT:
        return EXIT_TIMEOUT
    if execution.state in (ExecutionState.INTERRUPTED, ExecutionState.CANCELLED):
        return EXIT_INTERRUPTED
    if execution.state is ExecutionState.REJECTED:
        return EXIT_REJECTED
    if execution.state is ExecutionState.TOKEN_REVOKED:
        return EXIT_SERVER_FAILED  # as for a token that is refused from the start
    if execution.kernel_signal is not None:
        number = getattr(signal, execution.kernel_signal, None)
        return 128 + int(number) if number is not None else 1
    if execution.error is not None and execution.error.name == "SystemExit":
        return _system_exit(execution.error.value)
    if execution.error is not None and execution.error.name == "CalledProcessError":
        # IPython's %%bash raises this error for the shell's exit code; Python code may raise it for any other command.
        match = (
            _SHELL_EXIT.fullmatch(execution.error.value)
            if normalize_language(execution.language or "") in _SHELLS
            else None
        )
        return int(match[1]) if match else 1
    return execution.kernel_exit_code or 1  # a kernel that exits with 0 has not finished the code either


def _system_exit(value: str) -> int:
    """Return Python's exit code for a `SystemExit`: its number, 0 for None, else 1 with the object printed."""
    if value in ("", "None"):
        return 0
    if _EXIT_NUMBER.fullmatch(value):
        return int(value) & 0xFF  # as the operating system cuts it
    print(value, file=sys.stderr)
    return 1
