"""Exit codes of ``jupyter exec run`` for what the code has passed to ``sys.exit()``."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.cli.run_exit_code import exit_code
from jupyter_exec_ext.models import ErrorInfo, Execution, ExecutionState


def ended_by_exit(value: str) -> Execution:
    error = ErrorInfo("SystemExit", value, "")
    return Execution("exe_1", "ses_1", ExecutionState.ERROR, "1", "t", outputs=[], files=(), error=error)


@pytest.mark.parametrize(
    ("value", "expected"), [("", 0), ("None", 0), ("0", 0), ("3", 3), ("-1", 255), ("256", 0), ("1" * 30, 199)]
)
def test_number_passed_to_sys_exit_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], value: str, expected: int
) -> None:
    assert exit_code(ended_by_exit(value)) == expected
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value", ["--5", "-", "5-", "+5", "\u0663", "9" * 5000, "5\n"])
def test_text_passed_to_sys_exit_is_printed_with_exit_code_1(capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert exit_code(ended_by_exit(value)) == 1
    assert capsys.readouterr().err == f"{value}\n"
