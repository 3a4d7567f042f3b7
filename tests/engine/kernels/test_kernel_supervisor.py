"""The end of a process that is not ours to wait for: it is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
import zmq

from jupyter_exec_ext.engine.kernels import kernel_supervisor
from jupyter_exec_ext.engine.ports import KernelExit
from tests.support.remote_provisioner import free_port


class RemoteProvisioner:
    """A provisioner whose process runs elsewhere."""

    has_process = True
    returncode: int | None = None
    kernel_id = "k"
    log = logging.getLogger(__name__)
    connection_info: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        self.asked = 0

    async def poll(self) -> int | None:
        self.asked += 1
        return self.returncode

    async def asked_again(self) -> None:
        """Wait until it was asked twice more, so that the answer of the first was used."""
        enough = self.asked + 2
        while self.asked < enough:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_supervisor, "_REMOTE_POLL_SECONDS", 0.001)


async def test_the_end_of_a_remote_process_is_noticed_once() -> None:
    remote: Any = RemoteProvisioner()
    seen: asyncio.Queue[KernelExit] = asyncio.Queue()
    kernel_supervisor.watch_exit(remote, seen.put_nowait)
    await asyncio.wait_for(remote.asked_again(), 30)
    assert seen.empty()
    remote.returncode = -9
    assert await asyncio.wait_for(seen.get(), 30) == KernelExit(signal="SIGKILL")
    assert seen.empty()


async def test_a_watch_that_was_ended_asks_no_more() -> None:
    remote: Any = RemoteProvisioner()
    seen: list[KernelExit] = []
    unwatch = kernel_supervisor.watch_exit(remote, seen.append)
    await asyncio.wait_for(remote.asked_again(), 30)
    unwatch()
    asked, remote.returncode = remote.asked, 1
    other: Any = RemoteProvisioner()
    kernel_supervisor.watch_exit(other, seen.append)
    await asyncio.wait_for(other.asked_again(), 30)
    assert (remote.asked, seen) == (asked, [])


async def test_kernel_whose_listener_outlives_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_supervisor, "_GONE_SECONDS", 0.05)
    remote: Any = RemoteProvisioner()  # it goes on saying that the kernel lives
    seen: asyncio.Queue[KernelExit] = asyncio.Queue()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as kernel:
        remote.connection_info = {"ip": "127.0.0.1", "shell_port": kernel.bind_to_random_port("tcp://127.0.0.1")}
        kernel_supervisor.watch_exit(remote, seen.put_nowait)
        await asyncio.wait_for(remote.asked_again(), 30)
        assert seen.empty()
    assert await asyncio.wait_for(seen.get(), 30) == KernelExit()


async def test_kernel_that_has_not_opened_its_port_yet_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_supervisor, "_GONE_SECONDS", 0)
    remote: Any = RemoteProvisioner()
    remote.connection_info = {"ip": "127.0.0.1", "shell_port": free_port()}
    seen: list[KernelExit] = []
    unwatch = kernel_supervisor.watch_exit(remote, seen.append)
    await asyncio.wait_for(remote.asked_again(), 30)
    unwatch()
    assert seen == []
