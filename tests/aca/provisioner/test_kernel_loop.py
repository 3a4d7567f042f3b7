"""The thread of ACA kernels ends with its last kernel; nobody waits for ever for what it was doing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from jupyter_exec_ext.aca.provisioner import kernel_loop as aca_loop
from jupyter_exec_ext.aca.provisioner.aca_provisioner import KernelFiles
from jupyter_exec_ext.aca.provisioner.kernel_loop import KernelLoop
from jupyter_exec_ext.errors import Unavailable


class Slow:
    """Stands for a kernel, its session and their client: the session's files are never told."""

    identifier = "known"
    is_started = True

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.given_up = threading.Event()

    @property
    def session(self) -> Slow:
        return self

    async def files(self, identifier: str, directory: str = "", *, recursive: bool = False) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()


def files_of(loop: KernelLoop) -> tuple[Slow, KernelFiles]:
    slow: Any = Slow()
    return slow, KernelFiles(loop, slow, lambda: slow)


async def test_files_are_unavailable_while_and_after_the_loop_ends() -> None:
    loop = KernelLoop()
    slow, files = files_of(loop)
    listing = asyncio.ensure_future(files.list_files())
    await asyncio.to_thread(slow.asked.wait, 10)
    loop.stop()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(listing, 10)
    await asyncio.to_thread(loop.join)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(files.list_files(), 10)


async def test_calls_to_an_ending_loop_are_cancelled_or_refused() -> None:
    loop = KernelLoop()
    _, files = files_of(loop)
    loop.stop()
    while loop._thread.is_alive():
        with pytest.raises(Unavailable):
            await asyncio.wait_for(files.list_files(), 10)


async def test_cancelled_call_is_cancelled_in_the_loop() -> None:
    loop = KernelLoop()
    slow, files = files_of(loop)
    listing = asyncio.ensure_future(files.list_files())
    await asyncio.to_thread(slow.asked.wait, 10)
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing
    assert await asyncio.to_thread(slow.given_up.wait, 10)
    loop.stop()
    await asyncio.to_thread(loop.join)


def leave(loop: KernelLoop, until: asyncio.Event, done: threading.Event) -> None:
    """Leave something to be done, as the last kernel does before it lets go of the loop."""

    async def work() -> None:
        await until.wait()
        done.set()

    async def begin() -> None:
        loop.delete_in_background(work())

    loop.run(begin()).result(10)


def test_background_work_finishes_after_join_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aca_loop, "_EXIT_SECONDS", 0.1)
    loop, until, done = KernelLoop(), asyncio.Event(), threading.Event()
    leave(loop, until, done)
    loop.stop()
    loop.join()
    assert loop._thread.is_alive()
    loop._loop.call_soon_threadsafe(until.set)
    assert done.wait(10)
    loop._thread.join(10)
    assert not loop._thread.is_alive()


def test_background_work_over_the_limit_is_cancelled_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aca_loop, "_BACKGROUND_SECONDS", 0.1)
    loop, done = KernelLoop(), threading.Event()
    leave(loop, asyncio.Event(), done)
    loop.stop()
    loop.join()
    assert not loop._thread.is_alive()
    assert not done.is_set()
    assert "an ACA session was not deleted" in caplog.text
    assert "it took too long" in caplog.text
