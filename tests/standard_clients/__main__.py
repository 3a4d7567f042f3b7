"""Runs clients of Jupyter's kernels API against ours: ``python -m tests.standard_clients [NAME…]``.

Each is as its project has published it, in an environment of its own below ``.bench/standard_clients``, with a scoped
token. It gets what docs/howto/kernels-api.md has a user enter.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_exec_ext.executors.containers.container_image import find_or_build_default_image
from tests.executors.images import build
from tests.standard_clients.client_table import read_dockerfile, read_table
from tests.standard_clients.conftest import OWNER, URL
from tests.support import canaries
from tests.support.bearers import UNPROTECTED
from tests.support.container_engines import running_engine
from tests.support.environments import ROOT, TOOLS, environment, run_named
from tests.support.hosts import Host, running_host

HOME = ROOT / ".bench" / "standard_clients"
#: As the page names it.
IMAGE = "jupyter-exec-smolagents"
_OPEN_WEBUI = "0.6.36"
_TOKEN = re.compile(r"jex_\w{8}_\w{49}")


@dataclass(frozen=True)
class Client:
    """A client: its row of the page, what its environment holds, and what host it is run against."""

    row: str
    requirements: tuple[str, ...]
    host: str = "server"
    takes_no_base_url: bool = False


CLIENTS = {
    "autogen02": Client(
        "AutoGen 0.2 `JupyterCodeExecutor`",
        ("pyautogen[jupyter-executor]==0.2.35",),
        host="gateway",
        takes_no_base_url=True,
    ),
    "autogen": Client(
        "autogen-ext `DockerJupyterCodeExecutor`",
        ("autogen-ext[docker-jupyter-executor]==0.7.5",),
        host="gateway",
        takes_no_base_url=True,
    ),
    "smolagents_docker": Client("smolagents `DockerExecutor`", ("smolagents[docker]==1.26.0",), host=""),
    "smolagents": Client("smolagents' functions for kernels", ("smolagents[docker]==1.26.0",)),
    "jupyter_kernel_client": Client("jupyter-kernel-client", ("jupyter-kernel-client==1.0.2",)),
    "jupyter_konsole": Client("`jupyter konsole`", ("jupyter-kernel-client[konsole]==1.0.2",)),
    "jupyter_server": Client("Jupyter Server as a gateway's client", ("jupyter_server==2.21.0",)),
    "open_webui": Client("Open WebUI", ("aiohttp", "websockets", "pydantic>=2")),
    "jupyterlab_services": Client("`@jupyterlab/services`", ()),
}


def prepare(name: str) -> Path:
    """Return the Python of a client's tests."""
    if name == "open_webui":
        open_webui_file()
    if name != "jupyterlab_services":
        return environment(HOME / name, [*CLIENTS[name].requirements, *TOOLS])
    if not (ROOT / "labextension" / "node_modules" / "@jupyterlab" / "services").is_dir():
        command = ["npm", "ci", "--prefix", str(ROOT / "labextension"), "--silent", "--no-audit", "--no-fund"]
        subprocess.run(command, check=True)
    return Path(sys.executable)


def open_webui_file() -> Path:
    """Return Open WebUI's file for Jupyter out of its wheel, which is downloaded if the file is not there."""
    file = HOME / f"open_webui-{_OPEN_WEBUI}.py"
    if not file.is_file():
        with tempfile.TemporaryDirectory() as directory:
            only = ["--no-deps", f"--dest={directory}", f"open-webui=={_OPEN_WEBUI}"]
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *only], check=True)
            (wheel,) = Path(directory).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read("open_webui/utils/code_interpreter.py")
        HOME.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return file


def test(name: str) -> None:
    """Run the tests of one client."""
    python = prepare(name)
    if not CLIENTS[name].host:
        with running_engine() as engine:
            _build_image(engine)
            _run_pytest(python, name, {URL: ""})
        return
    with tempfile.TemporaryDirectory() as directory, _host(CLIENTS[name], Path(directory)) as host:
        _run_pytest(python, name, {URL: host.info.url, OWNER: host.info.token or ""})


def _run_pytest(python: Path, name: str, environ: dict[str, str]) -> None:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ = {**kept, "PYTHONPATH": str(ROOT), "PATH": f"{python.parent}{os.pathsep}{kept['PATH']}", **environ}
    if name == "open_webui":
        environ["EXEC_TEST_OPEN_WEBUI"] = str(open_webui_file())
    here = Path(__file__).parent
    options = ["-Wdefault", "--timeout=120", f"--confcutdir={here}"]  # warnings of theirs are no errors of ours
    subprocess.run([python, "-m", "pytest", *options, here / f"test_{name}.py"], cwd=ROOT, env=environ, check=True)


def _build_image(engine: Any) -> None:
    """Build the page's image for smolagents on the default image, which is made in less time than the page's.

    smolagents' final answers need NumPy and Pillow, which come with the page's matplotlib.
    """
    (base, *_) = find_or_build_default_image(engine, print, "host").tags
    first = f"FROM {base}\nUSER root\nRUN python -m pip install --no-cache-dir numpy pillow\nUSER 1000:1000"
    build(engine, IMAGE, read_dockerfile().replace("FROM jupyter-exec-gateway", first))


@contextmanager
def _host(client: Client, home: Path) -> Iterator[Host]:
    """Run a host for one client, which takes tokens from URLs only if the client's row says so."""
    app = "ExecPersonality" if client.host == "gateway" else "ExecExtensionApp"
    options = [UNPROTECTED, f"--{app}.allow_token_in_url={read_table()[client.row].is_in_url}"]
    if client.takes_no_base_url:
        options.append("--ExecPersonality.scoped_standard_api=True")
    with running_host(client.host, home, *options) as host:
        canaries.note(host.info.token or "")
        yield host
    assert canaries.look_through(host) == [], "secrets were found where none may be"
    assert _TOKEN.search(host.log_text()) is None, "a scoped token is in the log"


if __name__ == "__main__":
    sys.exit(run_named("tests.standard_clients", __doc__, CLIENTS, test, prepare))
