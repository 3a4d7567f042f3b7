"""A container engine for tests: Docker or Podman as it runs here, else a Podman that is started for them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from jupyter_exec_ext.executors.containers.container_image import DOCKERFILE
from tests.support.outside_parts import require_part

BASE = DOCKERFILE.splitlines()[0].removeprefix("FROM ")
_START_SECONDS = 30.0
# What Podman takes where it is in a container itself, or a small virtual machine: limits that need not be raised, and
# the runtime and manager that work with either version of control groups.
_PODMAN_SETTINGS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


@contextmanager
def running_engine() -> Iterator[Any]:
    """Yield a client of the engine that the environment then names, which has the default image's base."""
    with ExitStack() as undo:
        client = _client()
        if client is None:
            undo.enter_context(_podman())
            client = _client()
        assert client is not None
        undo.callback(client.close)
        _have_base_image(client)
        yield client


def _client() -> Any | None:
    """Return a client of the engine that is there; one that does not answer is an error."""
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        return None
    client = docker.from_env()
    client.ping()
    return client


@contextmanager
def _podman() -> Iterator[None]:
    require_part("container engine")
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        settings = Path(directory) / "containers.conf"
        settings.write_text(_PODMAN_SETTINGS)
        patch.setenv("CONTAINERS_CONF", str(settings))
        url = f"unix://{directory}/docker.sock"
        log = Path(directory) / "log"
        with log.open("w") as out:
            service = subprocess.Popen(
                ["podman", "system", "service", "--time=0", url],
                cwd=directory,  # what it starts leaves files there
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not (Path(directory) / "docker.sock").exists():
                assert service.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            patch.setenv("DOCKER_HOST", url)
            yield
        finally:
            service.terminate()
            service.wait(10)


def _have_base_image(client: Any) -> None:
    """Have the image that ours is built from: as it is here, else pulled, else made from Debian's packages."""
    try:
        client.images.get(BASE)
    except ImageNotFound:
        repository, _, tag = BASE.rpartition(":")
        try:
            client.images.pull(repository, tag=tag)
        except DockerException:
            _make_base_image(client, BASE)
            client.images.get(BASE)


def _make_base_image(client: Any, name: str) -> None:
    """Make what stands in for it where no registry can be reached: the same Debian, with Debian's own Python."""
    sources = "\n".join(path.read_text() for path in Path("/etc/apt").glob("sources.list*/*") if path.is_file())
    require_part("debootstrap")
    mirror = re.search(r"https?://\S+/debian/?(?=\s)", sources)
    assert mirror, "no mirror of Debian is named in /etc/apt"
    with tempfile.TemporaryDirectory() as directory:
        root, packed = Path(directory) / "root", Path(directory) / "root.tar"
        packages = "ca-certificates,python3,python3-pip,python3-venv"
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root), mirror[0]]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-4000:] + made.stderr
        # With those of a proxy, if this machine has one.
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs")
        (root / "usr/bin/python").symlink_to("python3")
        for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        shutil.rmtree(root / "var/cache/apt")
        subprocess.run(["tar", "-C", root, "-cf", packed, "."], check=True)
        changes = ["ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt", 'CMD ["python3"]']
        client.api.import_image_from_file(str(packed), repository=name, changes=changes)


def own_address() -> str:
    """Return an address of this machine at which others, such as containers, reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; only asks which way it would go
        return str(probe.getsockname()[0])


@contextmanager
def engine_over_tcp(address: str) -> Iterator[int]:
    """Yield a port of `address` at which the engine's API is, as on a machine that serves it to others."""
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    with socket.create_server((address, 0)) as listener:
        threading.Thread(target=_forward_all, args=(listener, path), daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def _forward_all(listener: socket.socket, path: str) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(path)
            for one, other in ((client, engine), (engine, client)):
                threading.Thread(target=_forward, args=(one, other), daemon=True).start()


def _forward(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    # Whichever direction ends last closes; a second close does nothing.
    other.close()
