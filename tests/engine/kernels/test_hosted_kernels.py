"""A host's kernelspecs: where they are read, and that no change of them is missed."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.engine.kernels.hosted_kernels import HostedKernels
from jupyter_exec_ext.errors import KernelSpecNotFound


class _Noted(KernelSpec):
    """Notes by which threads it was read, and takes its time over it."""

    readers: ClassVar[list[threading.Thread]] = []
    seconds: ClassVar[float] = 0.0

    @classmethod
    def from_resource_dir(cls, resource_dir: str) -> KernelSpec:
        cls.readers.append(threading.current_thread())
        time.sleep(cls.seconds)
        return super().from_resource_dir(resource_dir)


class _Somebodys(KernelSpecManager):
    """A manager that could do anything, such as ask a server."""


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Noted, "readers", [])


def install(directory: Path, name: str = "mine", display_name: str = "Mine") -> None:
    (directory / name).mkdir(parents=True, exist_ok=True)
    spec = {"argv": ["true", "{connection_file}"], "display_name": display_name, "language": "python"}
    (directory / name / "kernel.json").write_text(json.dumps(spec))


def host_of(*directories: Path, kind: type[KernelSpecManager] = KernelSpecManager) -> HostedKernels:
    specs: Any = kind(kernel_dirs=[str(directory) for directory in directories], kernel_spec_class=_Noted)
    return HostedKernels(AsyncMappingKernelManager(kernel_spec_manager=specs), specs)


def were_here() -> list[bool]:
    return [reader is threading.current_thread() for reader in _Noted.readers]


async def test_files_that_are_quick_are_read_on_the_spot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.hosted_kernels._QUICK_SECONDS", 60.0)
    install(tmp_path)
    host = host_of(tmp_path)
    for _ in range(3):
        assert (await host.find("mine")).display_name == "Mine"
    assert were_here() == [False, True, True]


async def test_files_that_were_slow_are_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    host = host_of(tmp_path)
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.hosted_kernels._QUICK_SECONDS", 60.0)
    await host.find("mine")
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.hosted_kernels._QUICK_SECONDS", 0.05)
    monkeypatch.setattr(_Noted, "seconds", 0.05)
    for _ in range(3):
        await host.find("mine")
    assert were_here() == [False, True, False, False]


async def test_a_manager_of_somebody_elses_always_has_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.hosted_kernels._QUICK_SECONDS", 60.0)
    install(tmp_path)
    host = host_of(tmp_path, kind=_Somebodys)
    for _ in range(3):
        await host.find("mine")
    assert were_here() == [False, False, False]


async def test_each_find_sees_the_files_as_they_are(tmp_path: Path) -> None:
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


def settle(*directories: Path) -> None:
    """Let everything in directories have been changed a while ago."""
    for directory in directories:
        for path in (directory, *directory.rglob("*")):
            os.utime(path, (time.time() - 60, time.time() - 60))


async def test_files_that_have_not_changed_for_a_while_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.hosted_kernels._QUICK_SECONDS", 60.0)
    users, system = tmp_path / "users", tmp_path / "system"
    users.mkdir()
    install(system)
    settle(users, system)
    host = host_of(users, system, tmp_path / "nowhere")
    found = [await host.find("mine") for _ in range(5)]
    assert len(_Noted.readers) == 1
    assert found == [found[0]] * 5
    version = host.version_of("mine")
    install(system, display_name="Mind")  # which is as long
    settle(users, system)
    assert (await host.find("mine")).display_name == "Mind"
    assert host.version_of("mine") != version
    await host.find("mine")
    read = len(_Noted.readers)
    await host.find("mine")
    assert len(_Noted.readers) == read
    install(users, display_name="The user's")
    assert (await host.find("mine")).display_name == "The user's"
    await host.find("mine")
    assert len(_Noted.readers) == read + 2  # what is that new might change once more
