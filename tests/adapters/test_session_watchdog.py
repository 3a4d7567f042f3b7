"""The watchdog of a session ends it, and imports nothing from the directory in which it was started."""

from __future__ import annotations

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jupyter_exec_ext import JupyterConnectionInfo
from jupyter_exec_ext.adapters._session_watchdog import SessionWatchdog

_SHADOW = "import os, pathlib; pathlib.Path(os.environ['IMPORTED']).touch()\n"


class EndingSessions(BaseHTTPRequestHandler):
    """A server that ends sessions, and keeps the paths that it was asked for."""

    asked: ClassVar[list[str]] = []

    def do_DELETE(self) -> None:
        """Note the path."""
        self.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


def test_watchdog_ends_the_session_without_modules_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, imported = tmp_path / "project", tmp_path / "imported"
    (project / "jupyter_exec_ext").mkdir(parents=True)
    for name in ("jupyter_exec_ext/__init__.py", "json.py", "subprocess.py", "dataclasses.py"):
        (project / name).write_text(_SHADOW)
    monkeypatch.chdir(project)
    monkeypatch.setenv("IMPORTED", str(imported))
    real: Any = subprocess.Popen

    def start_as_python_3_10(*args: Any, env: dict[str, str], **options: Any) -> Any:
        # Python 3.10 does not know this variable, and tests may run with a later version.
        return real(*args, env={name: text for name, text in env.items() if name != "PYTHONSAFEPATH"}, **options)

    monkeypatch.setattr(subprocess, "Popen", start_as_python_3_10)
    with HTTPServer(("127.0.0.1", 0), EndingSessions) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        watchdog = SessionWatchdog(JupyterConnectionInfo("127.0.0.1", False, server.server_port), "ses_1")
        watchdog._pipe.close()  # as if this program had ended
        assert watchdog._process.wait(60) == 0
        answering.join(60)
    assert EndingSessions.asked == ["/exec/v1/sessions/ses_1"]
    assert not imported.exists()
