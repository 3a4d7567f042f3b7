"""The servers of a run: ours, with kernels of a kind and with a pool or without, and those of peers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jupyter_exec_ext.engine.engine import ExecEngine

from .peers import PeerError, environment

LIBRARIES = ("numpy", "pandas", "matplotlib.pyplot")
POOLED = 2
_PORTS = range(20000, 30000)  # below those that systems give away
_START_SECONDS = 90.0
_STOP_SECONDS = 60.0
_GATEWAY = ("-m", "kernel_gateway")
_OURS = (*_GATEWAY, "--KernelGatewayApp.api=jupyter_exec_ext.gateway")
_SERVER = ("-m", "jupyter_server", "--allow-root", "--no-browser")
# What otherwise drops a stock server's output beyond 1 MB a second.
_UNLIMITED = "--ZMQChannelsWebsocketConnection.limit_rate=False"

# Provisioner and its configuration, by what kernels are called here.
_PROVISIONERS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("local-provisioner", {}),
    "sandbox": ("sandbox-provisioner", {}),
    "fork": ("forkserver-provisioner", {}),
    "fork with libraries": ("forkserver-provisioner", {"preload": list(LIBRARIES)}),
}


@dataclass(frozen=True)
class Place:
    """A server to be started.

    Parameters
    ----------
    arguments : tuple of str
        Of Python.
    peer : str, optional
        The environment of the Python; without it, this one.
    kernels : str
        What its ``python3`` is: a key of the table of provisioners.
    pool : bool
        Whether kernels wait to be taken.
    name : str
        What tells it from another one that is the same.
    python : Path, optional
        The Python of another version of this package; without it, this one.
    """

    arguments: tuple[str, ...]
    peer: str | None = None
    kernels: str = "plain"
    pool: bool = False
    name: str = ""
    python: Path | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it serves our API."""
        return self.arguments[: len(_OURS)] == _OURS

    def missing(self) -> str | None:
        """Return what this version lacks for it, if it lacks anything."""
        provisioner = _PROVISIONERS[self.kernels][0]
        known = {entry.name for entry in entry_points(group="jupyter_client.kernel_provisioners")}
        if self.kernels == "sandbox" and not shutil.which("bwrap"):
            return "bubblewrap is not installed"
        if provisioner not in known:
            return f"{provisioner} is not installed"
        if self.pool and not ExecEngine.class_traits().get("pool_size"):
            return "the engine has no pool"
        return None


def ours(kernels: str = "plain", *options: str, pool: bool = False) -> Place:
    """Return a Kernel Gateway that serves our API."""
    return Place((*_OURS, *options), kernels=kernels, pool=pool)


GATEWAY = Place((*_GATEWAY, _UNLIMITED), "kernel_gateway")
NBMODEL = Place((*_SERVER, "--ServerApp.jpserver_extensions={'jupyter_server_nbmodel': True}"), "nbmodel")
MCP = Place((*_SERVER, "--ServerApp.jpserver_extensions={'jupyter_mcp_server': True}"), "mcp")
POST = Place(("-m", "benchmarks.contenders.post"))


@dataclass
class Server:
    """One that runs."""

    port: int
    token: str
    process: subprocess.Popen[bytes]
    seconds: float = 0.0
    home: Path = field(default_factory=Path)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"


@contextlib.contextmanager
def running(place: Place, options: Sequence[str] = ()) -> Iterator[Server]:
    """Start a server; at the end stop it, with its kernels.

    Parameters
    ----------
    options : sequence of str
        More of them, for ours only.

    Raises
    ------
    PeerError
        If it does not answer, with the end of its log, or its environment cannot be made.
    """
    python = environment(place.peer) if place.peer else place.python or Path(sys.executable)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        _add_kernelspec(home, place.kernels, python)
        port = _free_port()
        token = secrets.token_hex(16)
        log = home / "log"
        with log.open("wb") as output:
            began = time.perf_counter()
            process = subprocess.Popen(
                [python, *place.arguments, *_options(place, port, options)],
                cwd=home,
                env=_environment(home, python, token),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        server = Server(port, token, process, home=home)
        try:
            _wait_for(server, log)
            server.seconds = time.perf_counter() - began
            yield server
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    """Return a port that nobody listens on, and that no kernel of another server gets meanwhile."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise PeerError("no port is free")


def _options(place: Place, port: int, more: Sequence[str]) -> list[str]:
    if place == POST:
        return [str(port)]
    app = "KernelGatewayApp" if place.arguments[: len(_GATEWAY)] == _GATEWAY else "ServerApp"
    options = [f"--{app}.port={port}", f"--{app}.ip=127.0.0.1", f"--{app}.port_retries=0", f"--{app}.log_level=ERROR"]
    if place.is_ours:
        options.append("--ExecEngine.max_sessions=0")
        if "pool_size" in ExecEngine.class_traits():
            options.append(f"--ExecEngine.pool_size={POOLED if place.pool else 0}")
        options += more
    return list({option.partition("=")[0]: option for option in options}.values())  # the last one of a name counts


def _environment(home: Path, python: Path, token: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON", "KG_", "JPY_"))}
    return kept | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_PATH": str(home / "share"),  # looked at first
        "JUPYTER_PLATFORM_DIRS": "1",
        "JUPYTER_TOKEN": token,
        "KG_AUTH_TOKEN": token,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }


def _add_kernelspec(home: Path, kernels: str, python: Path) -> None:
    """Let the ``python3`` of a server be of a kind, so that whoever asks for it gets that."""
    name, config = _PROVISIONERS[kernels]
    place = home / "share" / "kernels" / "python3"
    place.mkdir(parents=True)
    spec: dict[str, Any] = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
    }
    if name != "local-provisioner":
        spec["metadata"] = {"kernel_provisioner": {"provisioner_name": name, "config": config}}
    (place / "kernel.json").write_text(json.dumps(spec))


def _wait_for(server: Server, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{server.url}api", timeout=5).close()
        except urllib.error.HTTPError as answer:  # that we may not is an answer
            answer.close()
        except OSError:
            time.sleep(0.005)
            continue
        return
    raise PeerError(f"a server does not answer:\n{log.read_text(errors='replace')[-4000:]}")
