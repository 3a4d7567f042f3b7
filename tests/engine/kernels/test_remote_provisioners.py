"""Kernels on other machines: their files, their liveness through cuts of the network, and what they require."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import FilesNotAvailable, KernelStartFailed
from jupyter_exec_ext.models import ExecutionState
from tests.support.full import IS_FULL, only_in_full
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec, with_provisioner
from tests.support.remote_provisioner import CONTROL

ROOT = Path(__file__).parents[3]
#: A package with the name of gateway_provisioners and its setting, for environments without it.
PRETENDED = """
from gateway_provisioners import config_mixin
from tests.support.remote_provisioner import ElsewhereProvisioner

class DistributedProvisioner(ElsewhereProvisioner):
    pass
"""
SETTING = 'import os\nsocket_timeout = float(os.getenv("GP_SOCKET_TIMEOUT", "0.01"))\n'


def pretend_gateway_provisioners(home: Path) -> dict[str, str]:
    """Install it and a kernelspec that uses it; return the environment in which it is found."""
    add_kernelspec(home, "distributed", "distributed-provisioner")
    package = home / "plugins" / "gateway_provisioners"
    kind = "gateway_provisioners.distributed:DistributedProvisioner"
    env = with_provisioner(home, "distributed-provisioner", kind=kind)
    kind = "tests.support.remote_provisioner:ElsewhereProvisioner"
    with_provisioner(home, "elsewhere-provisioner", kind=kind, package="elsewhere-of-tests")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "config_mixin.py").write_text(SETTING)
    (package / "distributed.py").write_text(PRETENDED)
    return env


@dataclass
class Place:
    """A server with kernels elsewhere."""

    host: Host
    network: Path

    def cut(self, how: str, seconds: float) -> None:
        """Cut the network for a time."""
        self.network.write_text(how)
        Timer(seconds, self.network.write_text, [""]).start()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("elsewhere")
    network = home / "network"
    network.write_text("")
    add_kernelspec(home, "elsewhere", "elsewhere-provisioner")
    env = {**pretend_gateway_provisioners(home), CONTROL: str(network), "GP_SOCKET_TIMEOUT": "0"}
    with running_host("server", home, env=env) as host:
        yield Place(host, network)


@pytest.fixture
def session(place: Place) -> Iterator[Any]:
    with ExecClient(place.host.info) as client, client.session("elsewhere") as session:
        yield session


@only_in_full
def test_gateway_provisioners_are_refused_with_their_usual_socket_timeout(tmp_path: Path) -> None:
    env = pretend_gateway_provisioners(tmp_path)
    env[CONTROL] = str(tmp_path / "network")
    with (
        running_host("server", tmp_path, env=env) as host,
        ExecClient(host.info) as client,
        pytest.raises(KernelStartFailed, match="Start the server with GP_SOCKET_TIMEOUT=0"),
    ):
        client.session("distributed")
    assert not list(tmp_path.glob("inside-*.json"))


@pytest.mark.parametrize(
    ("provisioner", "timeout", "refused"),
    [
        ("distributed-provisioner", None, True),
        ("distributed-provisioner", "0.01", True),
        ("distributed-provisioner", "5", True),
        ("distributed-provisioner", "0", False),
        ("distributed-provisioner", "0.0", False),
        ("elsewhere-provisioner", "5", False),
        ("local-provisioner", "5", False),
        ("not-installed", "5", False),
    ][:: 1 if IS_FULL else 3],
)
def test_socket_timeout_of_gateway_provisioners_has_to_be_zero(
    tmp_path: Path, provisioner: str, timeout: str | None, refused: bool
) -> None:
    env = {**os.environ, **pretend_gateway_provisioners(tmp_path)}
    env.pop("GP_SOCKET_TIMEOUT", None)
    module = "jupyter_exec_ext.engine.kernels.provisioners"
    code = f"import sys; from {module} import why_refused; print(why_refused(sys.argv[1]))"
    env |= {} if timeout is None else {"GP_SOCKET_TIMEOUT": timeout}
    asked = [sys.executable, "-c", code, provisioner]
    said = subprocess.run(asked, env=env, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert (f"{float(timeout or '0.01'):g} s" in said, said == "None\n") == (refused, not refused)


def test_gateway_provisioners_without_a_socket_timeout_start_kernels(place: Place) -> None:
    with ExecClient(place.host.info) as client, client.session("distributed") as session:
        assert session.run("print(1)").stdout == "1\n"


def test_files_of_a_kernel_elsewhere_are_not_available(place: Place, session: Any, tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_text("of this machine")
    for verb in (
        lambda: session.upload(file, "data.txt"),
        lambda: session.download("data.txt", tmp_path / "back.txt"),
        lambda: session.list_files(),
        lambda: session.delete_file("data.txt"),
    ):
        with pytest.raises(FilesNotAvailable, match="runs elsewhere"):
            verb()
    assert session.run("open('data.txt')").error is not None
    assert not list(place.host.home.rglob("data.txt"))


@pytest.mark.parametrize("how", ["refuse", "stall"] if IS_FULL else ["refuse"])
@only_in_full
def test_kernel_outlives_a_cut_of_the_network(place: Place, session: Any, how: str) -> None:
    session.run("x = 41")
    Timer(0.5, place.cut, [how, 3.5]).start()
    result = session.run("import time; time.sleep(6); print(x + 1)", timeout_seconds=60)
    assert (result.state, result.stdout) == (ExecutionState.OK, "42\n"), result
    assert session.run("print(x)").stdout == "41\n"


@only_in_full
def test_end_of_a_kernel_elsewhere_is_told_without_an_exit_code(session: Any) -> None:
    session.run("1")
    begun = time.monotonic()
    result = session.run("import os; os._exit(7)", timeout_seconds=60)
    assert result.state is ExecutionState.KERNEL_DIED
    assert "exited with code" not in str(result.error)
    assert time.monotonic() - begun < 20
    assert session.run("print('again')").stdout == "again\n"
