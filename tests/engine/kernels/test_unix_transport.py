"""Which kernels are reached through Unix sockets: the sessions' IPython kernels, unless something speaks against it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels.unix_transport import has_room_for_sockets, holds_sockets, is_ipython, use_sockets
from jupyter_exec_ext.models import ExecutionRequest, SessionRequest

ME = owner("me")
LAUNCH = ("python", "-m", "ipykernel_launcher", "-f", "{connection_file}")


def install(data: Path, name: str, *argv: str, provisioner: str = "local-provisioner") -> None:
    directory = data / "kernels" / name
    directory.mkdir(parents=True)
    stanza = {"kernel_provisioner": {"provisioner_name": provisioner}}
    spec = {"argv": argv, "display_name": name, "language": "python", "metadata": stanza}
    (directory / "kernel.json").write_text(json.dumps(spec))


async def printed(engine: ExecEngine, code: str) -> str:
    """Run code in a new session; return what it prints."""
    session = await engine.create_session(ME, SessionRequest())
    execution = await engine.execute(ME, session.id, ExecutionRequest(code))
    return (await execution.wait()).stdout


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"], True),
        (["/opt/v/bin/python3.11", "-Xfrozen_modules=off", "-m", "ipykernel", "-f", "{connection_file}"], True),
        (["docker", "run", "image", "python", "-m", "ipykernel_launcher", "-f", "{connection_file}"], False),
        (["python", "-m", "some_wrapper", "ipykernel_launcher", "-f", "{connection_file}"], False),
        (["deno", "jupyter", "--kernel", "--conn", "{connection_file}"], False),
        ([], False),
    ],
)
def test_a_command_is_known_to_be_an_ipython_kernel(argv: Sequence[str], expected: bool) -> None:
    assert is_ipython(argv) is expected


def test_the_sockets_names_must_not_be_too_long() -> None:
    assert has_room_for_sockets("/run/kernel-1.json")
    assert not has_room_for_sockets(f"/{'ü' * 60}/kernel-1.json")  # two bytes each
    assert not has_room_for_sockets("kernel-1.json")  # it is elsewhere for a kernel with a directory of its own


def test_not_every_file_system_has_sockets(short_path: Path) -> None:
    assert holds_sockets(str(short_path))
    assert os.listdir(short_path) == []
    assert not holds_sockets("/proc")
    assert not holds_sockets(str(short_path / "missing"))


@pytest.mark.parametrize(
    ("options", "transport"),
    [
        ({}, "ipc"),
        ({"ip": "0.0.0.0"}, "tcp"),  # an administrator wants to reach it from elsewhere
        ({"kernel_name": "wrapped"}, "tcp"),
        ({"kernel_name": "elsewhere"}, "tcp"),
        ({"connection_file": "/proc/kernel-a.json"}, "tcp"),
        ({"connection_file": ""}, "tcp"),  # no file is named: the manager chooses one
    ],
)
def test_manager_uses_sockets_only_where_they_work(short_path: Path, options: dict[str, Any], transport: str) -> None:
    install(Path(os.environ["JUPYTER_DATA_DIR"]), "wrapped", "nice", *LAUNCH)
    install(Path(os.environ["JUPYTER_DATA_DIR"]), "elsewhere", *LAUNCH, provisioner="aca-provisioner")
    manager = KernelManager(**{"kernel_name": "python3", "connection_file": f"{short_path}/kernel-a.json", **options})
    use_sockets(manager)
    assert manager.transport == transport
    assert manager.ip == (f"{short_path}/kernel-a-ipc" if transport == "ipc" else options.get("ip", "127.0.0.1"))


async def test_sessions_use_sockets_that_are_gone_afterwards_and_notebooks_do_not(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    assert await printed(engine, "print(1)") == "1\n"
    (kernel_id,) = manager.list_kernel_ids()
    info = manager.get_kernel(kernel_id).get_connection_info()
    assert info["transport"] == "ipc"
    path = Path(f"{info['ip']}-{info['shell_port']}")
    assert path.parent == Path(manager.connection_dir)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)  # which it takes to connect
    of_a_notebook = await manager.start_kernel(kernel_name="python3")
    assert manager.get_kernel(of_a_notebook).get_connection_info()["transport"] == "tcp"
    await manager.shutdown_kernel(of_a_notebook, now=True)
    await engine.shutdown()
    assert os.listdir(manager.connection_dir) == []


async def test_tcp_is_used_where_it_is_asked_for_or_the_directory_is_deep(
    make_engine: Callable[..., ExecEngine], manager: AsyncMappingKernelManager, tmp_path: Path
) -> None:
    assert await printed(make_engine(kernel_transport="tcp"), "print(1)") == "1\n"
    manager.connection_dir = str(tmp_path / ("d" * 100))
    os.mkdir(manager.connection_dir)
    assert await printed(make_engine(), "print(2)") == "2\n"
    kernels = [manager.get_kernel(kernel_id) for kernel_id in manager.list_kernel_ids()]
    assert [kernel.get_connection_info()["transport"] for kernel in kernels] == ["tcp", "tcp"]
