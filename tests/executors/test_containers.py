"""What is decided about containers without an engine: how a server is reached, its options, and the wheel it gets."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jupyter_exec_ext import DockerJupyterServer
from jupyter_exec_ext.executors.containers import container_engine, container_watchdog
from jupyter_exec_ext.executors.containers.container_image import build_own_wheel
from jupyter_exec_ext.executors.containers.container_options import (
    Reach,
    find_reach,
    limit_options,
    path_seen_by_engine,
    remote_engine_host,
)
from jupyter_exec_ext.executors.containers.container_watchdog import stop_container


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("", None),
        ("unix:///var/run/docker.sock", None),
        ("npipe:////./pipe/docker_engine", None),
        ("tcp://127.0.0.1:2375", None),
        ("tcp://localhost:2375", None),
        ("tcp://[::1]:2375", None),
        ("tcp://build.example:2376", "build.example"),
        ("https://192.0.2.7:2376", "192.0.2.7"),
        ("ssh://ada@build.example", "build.example"),
        ("tcp://[2001:db8::7]:2376", "2001:db8::7"),
    ],
)
def test_engine_host_is_parsed_from_docker_host(url: str, host: str | None) -> None:
    assert remote_engine_host(url) == host


def reach(
    remote_host: str | None = None,
    *,
    network: str | None = None,
    internal: bool = False,
    own_network: bool = False,
    own_networks: list[str] | None = None,
) -> Reach:
    return find_reach(
        remote_host, network=network, internal=internal, own_network=own_network, own_networks=own_networks
    )


def test_empty_token_for_the_default_image_is_rejected_before_the_engine_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    with pytest.raises(ValueError, match="token='' is not allowed with this image"):
        DockerJupyterServer(token="")


class _Errors:
    class NotFound(Exception):
        """As the library's."""

    class APIError(Exception):
        """As the library's."""


class FakeEngine:
    """An engine with one container and one network, as far as the watchdog asks for them.

    Parameters
    ----------
    refusal : Exception, optional
        What stopping the container raises.
    looks : int
        How often the container is found before it is gone.
    """

    errors = _Errors

    def __init__(self, refusal: Exception | None = None, looks: int = 1000) -> None:
        self.containers = self.networks = self
        self.removed: list[str] = []
        self.is_closed = False
        self._refusal, self._looks = refusal, looks
        self._named = ""

    def get(self, name: str) -> FakeEngine:
        self._looks -= 1
        if self._looks < 0:
            raise _Errors.NotFound
        self._named = name
        return self

    def stop(self, **_options: object) -> None:
        if self._refusal is not None:
            raise self._refusal

    def remove(self, **_options: object) -> None:
        self.removed.append(self._named)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def _fake_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (container_engine, container_watchdog):
        monkeypatch.setattr(module, "docker_library", lambda: FakeEngine)


@pytest.mark.usefixtures("_fake_library")
@pytest.mark.parametrize("remove", [True, False])
def test_stop_container_that_is_gone_is_no_error(remove: bool) -> None:
    stop_container(FakeEngine(looks=0), "id", remove=remove)


@pytest.mark.usefixtures("_fake_library")
def test_stop_container_raises_refusal_unless_the_container_is_removed_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = _Errors.APIError("refused")
    with pytest.raises(_Errors.APIError, match="refused"):
        stop_container(FakeEngine(refusal), "id", remove=False)
    stop_container(FakeEngine(refusal, looks=1), "id", remove=True)
    monkeypatch.setattr(container_watchdog, "_REMOVE_SECONDS", -1.0)
    with pytest.raises(_Errors.APIError, match="refused"):
        stop_container(FakeEngine(refusal), "id", remove=True)
    with pytest.raises(TimeoutError, match="does not remove"):
        stop_container(FakeEngine(), "id", remove=True)


@pytest.mark.usefixtures("_fake_library")
def test_watchdog_removes_the_network_of_a_container_that_cannot_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(_Errors.APIError("refused"))
    order = {"parent": 1, "container": "id", "remove": False, "network": "mine"}
    monkeypatch.setattr(container_watchdog, "_read_order", lambda: order)
    monkeypatch.setattr(container_watchdog, "_wait_for_parent", lambda parent: True)
    monkeypatch.setattr(container_watchdog, "connect_to_engine", lambda: engine)
    with pytest.raises(_Errors.APIError, match="refused"):
        container_watchdog.main()
    assert engine.removed == ["mine"]
    assert engine.is_closed


def test_a_local_engine_publishes_on_loopback() -> None:
    assert reach() == Reach("127.0.0.1", "127.0.0.1", None)
    assert reach(network="mine") == Reach("127.0.0.1", "127.0.0.1", "mine")


def test_a_remote_engine_publishes_at_the_address_it_is_known_by() -> None:
    assert reach("192.0.2.7") == Reach("192.0.2.7", "192.0.2.7", None)
    with pytest.raises(ValueError, match=r"no-such-host\.invalid"):
        reach("no-such-host.invalid")


def test_where_nothing_is_published_the_containers_own_address_is_used() -> None:
    assert reach(internal=True, network="inner") == Reach(None, None, "inner")
    assert reach(own_networks=["bridge", "mine"]) == Reach(None, None, "bridge")
    assert reach(own_networks=["bridge", "mine"], network="mine") == Reach(None, None, "mine")
    assert reach(own_networks=[]) == Reach("127.0.0.1", "127.0.0.1", None)  # on its host's network


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network": "none"}, "none"),
        ({"network": "host"}, "host"),
        ({"network": "container:abc"}, "container:abc"),
        ({"remote_host": "192.0.2.7", "internal": True}, "another machine"),
        ({"own_networks": ["bridge"], "network": "mine"}, "docker network connect"),
        ({"own_networks": ["bridge"], "internal": True, "own_network": True}, "docker network create --internal"),
    ],
)
def test_unreachable_server_is_rejected_with_remedy(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reach(**options)  # type: ignore[arg-type]


def test_path_in_own_container_is_translated_for_engine() -> None:
    mounts = [
        {"Destination": "/data", "Source": "/srv/data"},
        {"Destination": "/data/deep", "Source": "/srv/other"},
    ]
    assert path_seen_by_engine("/data/in/it", mounts) == "/srv/data/in/it"
    assert path_seen_by_engine("/data/deep", mounts) == "/srv/other"
    with pytest.raises(ValueError, match="only what is mounted"):
        path_seen_by_engine("/database", mounts)


def test_limit_options_leave_no_swap() -> None:
    assert limit_options(None, None, None) == {}
    assert limit_options("1g", 1.5, 10) == {
        "mem_limit": "1g",
        "memswap_limit": "1g",
        "nano_cpus": 1_500_000_000,
        "pids_limit": 10,
    }


def test_the_wheel_of_an_installed_wheel_is_the_same_wheel(tmp_path: Path) -> None:
    """So the image is the same from a source checkout and from wherever the package was installed."""
    wheel = build_own_wheel()
    assert build_own_wheel() == wheel
    file = tmp_path / wheel.file_name
    file.write_bytes(wheel.content)
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--target", str(target), str(file)], check=True)
    code = (
        "import sys; from jupyter_exec_ext.executors.containers.container_image import build_own_wheel\n"
        "sys.stdout.buffer.write(build_own_wheel().content)"
    )
    again = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(target)}, cwd=tmp_path, capture_output=True, check=True
    )
    assert again.stdout == wheel.content


def test_the_wheel_has_the_package_and_what_it_needs() -> None:
    wheel = build_own_wheel()
    names = zipfile.ZipFile(BytesIO(wheel.content)).namelist()
    assert "jupyter_exec_ext/cli/managed_gateway.py" in names
    assert "jupyter_exec_ext/server/openapi.yaml" in names
    assert not [name for name in names if "__pycache__" in name]
    needed = {canonicalize_name(Requirement(line).name) for line in wheel.requirements.splitlines()}
    assert {"jupyter-kernel-gateway", "ipykernel"} <= needed
    assert not {"pytest", "docker"} & needed
