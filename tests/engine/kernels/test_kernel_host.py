from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.engine.kernels.kernel_host import ManagerKernelHost
from jupyter_exec_ext.errors import KernelSpecNotFound, OutOfResources


class _Noted(KernelSpec):
    """Notes by which threads it was read."""

    readers: ClassVar[list[threading.Thread]] = []

    @classmethod
    def from_resource_dir(cls, resource_dir: str) -> KernelSpec:
        cls.readers.append(threading.current_thread())
        return super().from_resource_dir(resource_dir)


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Noted, "readers", [])


def install(directory: Path, name: str = "mine", display_name: str = "Mine") -> None:
    (directory / name).mkdir(parents=True, exist_ok=True)
    spec = {"argv": ["true", "{connection_file}"], "display_name": display_name, "language": "python"}
    (directory / name / "kernel.json").write_text(json.dumps(spec))


def host_of(*directories: Path) -> ManagerKernelHost:
    specs: Any = KernelSpecManager(kernel_dirs=[str(directory) for directory in directories], kernel_spec_class=_Noted)
    return ManagerKernelHost(AsyncMappingKernelManager(kernel_spec_manager=specs), specs)


async def test_find_reads_kernelspecs_outside_the_event_loop(tmp_path: Path) -> None:
    install(tmp_path)
    assert (await host_of(tmp_path).find("mine")).display_name == "Mine"
    assert _Noted.readers and threading.current_thread() not in _Noted.readers


async def test_find_without_free_descriptors_raises_out_of_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(resource_dir: str) -> KernelSpec:
        raise OSError(errno.EMFILE, "Too many open files", resource_dir)

    install(tmp_path)
    monkeypatch.setattr(_Noted, "from_resource_dir", refuse)
    with pytest.raises(OutOfResources, match="limit of the system"):
        await host_of(tmp_path).find("mine")


async def test_each_find_returns_the_files_as_they_are(tmp_path: Path) -> None:
    system, users = tmp_path / "system", tmp_path / "users"
    users.mkdir()
    install(system)
    host = host_of(users, system)
    found = [await host.find("mine"), await host.find("mine")]
    versions = [host.version_of("mine")]
    install(system, display_name="Changed")
    found.append(await host.find("mine"))
    versions.append(host.version_of("mine"))
    install(users, display_name="The user's")
    found.append(await host.find("mine"))
    versions.append(host.version_of("mine"))
    assert [spec.display_name for spec in found] == ["Mine", "Mine", "Changed", "The user's"]
    assert len(set(versions)) == 3
    for directory in (users, system):
        (directory / "mine" / "kernel.json").unlink()
    with pytest.raises(KernelSpecNotFound, match="'mine'"):
        await host.find("mine")
