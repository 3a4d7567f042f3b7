"""Real hosts for tests: server processes with our API, each with directories of its own."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from jupyter_exec_ext.client import JupyterConnectionInfo
from tests.support.full import IS_FULL
from tests.support.kernelspecs import add_kernelspec

CANARY = "canary-of-the-servers-environment"
# Small enough to be reached in a test.
MAX_OUTPUT_BYTES = 8 * 1024 * 1024
MAX_CODE_BYTES = 2 * 1024 * 1024
MAX_FILE_BYTES = 24 * 1024 * 1024
MAX_SESSION_BYTES = 32 * 1024 * 1024
MAX_SESSION_FILES = 400
# How isolated the kernels of every host are, so that any test can be run with kernels in a sandbox.
ISOLATION = os.environ.get("EXEC_TEST_ISOLATION", "none")
# Whether they are forked, which saves a second of processor time for each; the full run starts them as usual.
FORKED = os.environ.get("EXEC_TEST_FORKED", "0" if IS_FULL else "1") != "0"
# Provisioner of the kernelspec `python3`, if it is not Jupyter's own. A server that is asked for Landlock would use a
# sandbox where there is one.
_PROVISIONER = "landlock-provisioner" if ISOLATION == "landlock" else "forkserver-provisioner" if FORKED else ""
_START_SECONDS = 60.0

# A server as it is where no JupyterLab is installed. Lab's extensions are more than half of what a start takes.
_LABS = ("jupyterlab", "jupyter_lsp", "notebook_shim")
_SERVER = ["-m", "jupyter_server", f"--ServerApp.jpserver_extensions={dict.fromkeys(_LABS, False)}"]
_LAB = ["-m", "jupyterlab"]
_GATEWAY = ["-m", "kernel_gateway", "--KernelGatewayApp.api=jupyter_exec_ext.gateway"]

# The hosts that the contract must hold on: how each is started, and below which path it serves.
HOSTS = {
    "server": (_SERVER, "/"),
    "server-base-url": (_SERVER, "/user/x/"),
    "lab": (_LAB, "/"),
    "gateway": (_GATEWAY, "/"),
}


@dataclass
class Host:
    """A running host."""

    name: str
    process: subprocess.Popen[bytes]
    info: JupyterConnectionInfo
    home: Path
    log: Path
    options: list[str] = field(default_factory=list)
    # Where `info` has the token of somebody else.
    owner_info: JupyterConnectionInfo | None = None

    @property
    def owner(self) -> JupyterConnectionInfo:
        """How the owner reaches it."""
        return self.owner_info or self.info

    @property
    def is_gateway(self) -> bool:
        return self.name.startswith("gateway")

    @property
    def pid(self) -> int:
        """The process that serves our API."""
        return self.process.pid

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


def free_port() -> int:
    """Return a port that nobody has, and nobody is given who asks for any, such as a kernel: those are above 32,767."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """Return an environment with Jupyter's directories below `home` and no settings of the caller's."""
    callers = ("JUPYTER", "IPYTHON", "KG_", "JPY_", "PYTEST_", "COLUMNS", "LINES")  # the size comes from the terminal
    kept = {name: value for name, value in os.environ.items() if not name.startswith(callers)}
    # The first has a short name, since kernels have sockets there.
    directories = {"JUPYTER_RUNTIME_DIR": str(home / "run"), "JUPYTER_DATA_DIR": str(home / "jupyter_data_dir")}
    own = {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "EXEC_TEST_CANARY": CANARY,
    }
    return kept | directories | own | extra


def common_options(given: Sequence[str], max_output_bytes: int = MAX_OUTPUT_BYTES) -> list[str]:
    """Return the options that every host gets, apart from those that are given."""
    settings: dict[str, Any] = {
        "max_output_bytes": max_output_bytes,
        "max_code_bytes": MAX_CODE_BYTES,
        "max_file_bytes": MAX_FILE_BYTES,
        "max_session_bytes": MAX_SESSION_BYTES,
        "max_session_files": MAX_SESSION_FILES,
        "default_isolation": ISOLATION,
        "package_wheelhouse": str(Path(__file__).parent),  # there are no wheels, and no test may ask an index
    }
    names = {option.partition("=")[0] for option in given}
    options = [f"--ExecEngine.{k}={v}" for k, v in settings.items() if f"--ExecEngine.{k}" not in names]
    # For the clients' way over the standard WebSocket, which a server otherwise cuts at 1 MB a second.
    limit = "--ZMQChannelsWebsocketConnection.limit_rate"
    return options if any(option.startswith(limit) for option in given) else [*options, f"{limit}=False"]


@contextmanager
def running_host(
    name: str,
    home: Path,
    *options: str,
    token: str | None = None,
    port: int | None = None,
    base_url: str | None = None,
    env: Mapping[str, str] | None = None,
    connect: Mapping[str, Any] | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    prefix: Sequence[str] = (),
) -> Iterator[Host]:
    """Start one of `HOSTS` (`prefix`: in what way) and stop it, with all that it started, at the end."""
    command, usual_base_url = HOSTS[name]
    if name == "server-base-url":  # as one of a user's several servers at a JupyterHub
        options = (*options, "--ExecEngine.server_name=w2")
    base_url = base_url or usual_base_url
    token = secrets.token_hex(16) if token is None else token
    port = port or free_port()
    root = home / "root"
    root.mkdir(parents=True, exist_ok=True)
    if _PROVISIONER and not (home / "jupyter_data_dir" / "kernels" / "python3").exists():
        add_kernelspec(home, "python3", _PROVISIONER)
    app = "KernelGatewayApp" if command is _GATEWAY else "ServerApp"
    arguments = [f"--{app}.port={port}", f"--{app}.ip=127.0.0.1", f"--{app}.base_url={base_url}"]
    arguments += common_options(options, max_output_bytes)
    if command is _GATEWAY:
        arguments += [f"--{app}.port_retries=0", "--JupyterWebsocketPersonality.list_kernels=True"]
    else:
        arguments += ["--allow-root", "--no-browser", f"--ServerApp.root_dir={root}", "--ServerApp.port_retries=0"]
    log = home / f"{name}.log"
    own_env = {"JUPYTER_TOKEN": token, "KG_AUTH_TOKEN": token}
    if (
        _PROVISIONER
    ):  # in a virtual environment Jupyter prefers the environment's own kernelspec to one in its data directory
        own_env["JUPYTER_PATH"] = str(home / "jupyter_data_dir")
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [*prefix, sys.executable, *command, *arguments, *options],
            cwd=root,
            env=clean_environment(home, **{**own_env, **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    known = {"host": "127.0.0.1", "use_https": False, "port": port, "token": token or None, "base_url": base_url}
    info = JupyterConnectionInfo(**{**known, **(connect or {})})
    host = Host(name, process, info, home, log, list(options))
    try:
        wait_until_ready(host)
        yield host
    finally:
        stop(process)


def wait_until_ready(host: Host, seconds: float = _START_SECONDS) -> None:
    """Wait until the host answers at all; extensions are loaded before it listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            tls: dict[str, Any] = {"verify": host.info.verify, "cert": host.info.client_cert}
            requests.get(f"{host.info.url}api", headers=host.info.auth_headers, timeout=5, **tls).raise_for_status()
            return
        except requests.RequestException:
            if host.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{host.name} did not start:\n{host.log_text()}") from None
            time.sleep(0.05)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a host with SIGTERM, twice if need be.

    Jupyter's applications write to their log in their signal handler. Python raises an error there if the signal comes
    while another line is being written to the log, and the application goes on.
    """
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise AssertionError("the host did not stop on SIGTERM")
