"""Parts of ``jupyter exec run``: its exit codes, its directory for pictures, and the gateway that it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from jupyter_exec_ext.cli import server_choice
from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.cli.managed_gateway import configuration
from jupyter_exec_ext.cli.messages import UsageError
from jupyter_exec_ext.cli.run_command import _output_dir
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


def test_directory_for_pictures_that_cannot_be_reached_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", "closed")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(UsageError, match="Permission denied: closed"):
        _output_dir("closed/out")


def test_file_in_place_of_the_directory_for_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="it is not a directory"):
        _output_dir(str(tmp_path / "file"))


@pytest.mark.parametrize("option", [("--kernel", "ir"), ("--isolation", "sandbox")])
def test_option_of_new_session_is_refused_with_session(
    capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    assert main(["run", "--session", "ses_1", *option, "--server", "http://127.0.0.1:9", "-c", "1"]) == 2
    assert f"{option[0]} is for a new session" in capsys.readouterr().err


def test_gateway_of_one_run_keeps_no_kernel_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {}

    def note_settings(**given: Any) -> NoReturn:
        settings.update(given)
        raise UsageError("started nothing")

    monkeypatch.delenv("JUPYTER_EXEC_SERVER", raising=False)
    monkeypatch.setattr(server_choice, "LocalJupyterServer", note_settings)
    assert main(["run", "-c", "1"]) == 2
    made = configuration({"ip": "127.0.0.1", "port": 0, "token": "t", "log_level": "INFO", **settings}).ExecEngine
    # Such a pool is off: it starts none of the kernels of `pool_kernels` either.
    assert made.pool_size == 0
