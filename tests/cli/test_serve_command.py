"""``jupyter exec serve``: ports that are taken or out of range, and root."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_server.extension.manager import ExtensionManager
from jupyter_server.serverapp import ServerApp

from jupyter_exec_ext.cli import listening_port
from jupyter_exec_ext.cli.listening_port import choose_port
from jupyter_exec_ext.cli.messages import UsageError
from jupyter_exec_ext.cli.server_app import ExecServerApp
from jupyter_exec_ext.cli.start_checks import refuse_root
from tests.cli.test_cli import jupyter_exec
from tests.support.hosts import clean_environment


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("options", [["--gateway"], []])
def test_named_port_in_use_is_refused_with_its_holder(tmp_path: Path, taken: int, options: list[str]) -> None:
    done = jupyter_exec(tmp_path, "serve", *options, "--port", str(taken), "--allow-root")
    assert done.returncode == 2
    assert f"port {taken} is in use by " in done.stderr
    assert f"(process {os.getpid()})" in done.stderr
    assert "Serving" not in done.stderr


def test_next_free_port_is_used_and_printed(
    taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listening_port, "DEFAULT_PORT", taken)
    port = choose_port("127.0.0.1", None)
    assert taken < port < taken + 50
    assert f"port {port} is used instead" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "x", "1" * 5000])
def test_port_out_of_range_is_refused(tmp_path: Path, port: str) -> None:
    done = jupyter_exec(tmp_path, "serve", f"--port={port}")
    assert (done.returncode, "is not a port; write a number from 1 to 65535" in done.stderr) == (2, True)


def test_root_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refuse_root()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UsageError, match="add --allow-root"):
        refuse_root()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
@pytest.mark.parametrize("options", [["--gateway"], []])
def test_both_servers_refuse_root(tmp_path: Path, options: list[str]) -> None:
    done = jupyter_exec(tmp_path, "serve", *options, "--port", "0")
    assert done.returncode == 2
    assert "jupyter exec: you are root" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [["--gateway"], []])
def test_mistake_in_policy_file_is_refused_with_file_field_and_hint(tmp_path: Path, options: list[str]) -> None:
    file = tmp_path / "policies.toml"
    file.write_text("[mine.approval]\nwhen = ['shell']\ntimeout = 60\n")
    done = jupyter_exec(
        tmp_path, "serve", *options, "--port", "0", "--allow-root", "--", f"--ExecEngine.policy_file={file}"
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "jupyter exec: nothing is served: policies.toml: policy 'mine': 'approval': unknown field 'timeout'; "
        "did you mean 'timeout_seconds'?"
    )
    assert "Serving" not in done.stderr
    assert "Traceback" not in done.stderr


# `jupyter exec serve --gateway` that ends where it would open its port.
GATEWAY_WITHOUT_A_PORT = """
import sys
from jupyter_exec_ext.cli import gateway_app
from jupyter_exec_ext.cli.main import main

def bind_sockets(port, address):
    raise SystemExit("the port would be open")

gateway_app.bind_sockets = bind_sockets
sys.exit(main(["serve", "--gateway", "--port", "0", "--allow-root", "--", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("field", "code", "last_line"),
    [("max_session", 2, "jupyter exec: nothing is served: "), ("max_sessions", 1, "the port would be open")],
)
def test_gateway_refuses_policies_before_it_opens_its_port(
    tmp_path: Path, field: str, code: int, last_line: str
) -> None:
    option = f"--ExecEngine.policies={{'mine': {{'{field}': 1}}}}"
    done = subprocess.run(
        [sys.executable, "-c", GATEWAY_WITHOUT_A_PORT, option],
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1].startswith(last_line)


def test_server_whose_options_leave_out_the_extension_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ServerApp] = []
    monkeypatch.setattr(ServerApp, "start_app", lambda self: started.append(self))
    app = ExecServerApp(allow_root=True)
    app.extension_manager = ExtensionManager(serverapp=app)
    app.start_app()
    assert started == [app]
