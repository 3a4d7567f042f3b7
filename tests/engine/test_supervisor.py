"""The end of a process that is not ours to wait for: it is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from jupyter_exec_ext.engine import supervisor
from jupyter_exec_ext.engine.ports import KernelExit


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
    monkeypatch.setattr(supervisor, "_REMOTE_POLL_SECONDS", 0.001)


async def test_the_end_of_a_remote_process_is_noticed_once() -> None:
    remote: Any = RemoteProvisioner()
    seen: asyncio.Queue[KernelExit] = asyncio.Queue()
    supervisor.watch_exit(remote, seen.put_nowait)
    await asyncio.wait_for(remote.asked_again(), 30)
    assert seen.empty()
    remote.returncode = -9
    assert await asyncio.wait_for(seen.get(), 30) == KernelExit(signal="SIGKILL")
    assert seen.empty()


async def test_a_watch_that_was_ended_asks_no_more() -> None:
    remote: Any = RemoteProvisioner()
    seen: list[KernelExit] = []
    unwatch = supervisor.watch_exit(remote, seen.append)
    await asyncio.wait_for(remote.asked_again(), 30)
    unwatch()
    asked, remote.returncode = remote.asked, 1
    other: Any = RemoteProvisioner()
    supervisor.watch_exit(other, seen.append)
    await asyncio.wait_for(other.asked_again(), 30)
    assert (remote.asked, seen) == (asked, [])
