"""Worker threads of each process: provisioners run what blocks in them, also in a process that was forked.

A worker process that multiprocessing has forked may go on with its parent's event loop, since jupyter_core's `run_sync`
does. Two things of such a loop are of no use there:

- its default executor (`asyncio.to_thread`) counts on threads which the child does not have, so the work is never done;
- the pipe by which threads wake it up (`call_soon_threadsafe`, `asyncio.wrap_future`) is shared by all of these
  processes, and another one may read what was to wake this one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Starts wait here for fork parents and sandboxes, which take seconds at the first time. asyncio's default executor has
# at most as many threads.
_THREADS = 32


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in one of this process's worker threads, and return what it returns."""
    return await finished(_executor(os.getpid()).submit(function, *args, **kwargs))


@cache
def _executor(_: int) -> ThreadPoolExecutor:
    """Return the threads of the process with this id; one that was forked has none of its parent's."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="kernel-provisioner")


async def finished(future: Future[T]) -> T:
    """Wait until another thread is done, and return its result; if the wait is cancelled, so is what has not begun."""
    if not future.done():
        wake = _Wake()
        try:
            future.add_done_callback(wake.up)
            while not future.done():  # another process's descriptor with the same number may be what has woken us
                await wake.wait()
        finally:
            future.cancel()  # has no effect on one that is done
            wake.close()
    return future.result()


class _Wake:
    """A pair of sockets by which a thread wakes up the running loop, and no other process's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] = self._loop.create_future()
        self._closing = threading.Lock()
        self._reader, self._writer = socket.socketpair()
        self._loop.add_reader(self._reader, self._on_readable)

    def up(self, _: object) -> None:
        """Wake the loop up; for any thread."""
        with self._closing:  # the loop may close the sockets meanwhile
            if self._writer.fileno() != -1:
                self._writer.send(b"-")  # which stays unread: once is enough

    def _on_readable(self) -> None:
        if not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        """Wait to be woken up."""
        await self._waiting
        self._waiting = self._loop.create_future()

    def close(self) -> None:
        self._loop.remove_reader(self._reader)
        with self._closing:
            self._writer.close()
        self._reader.close()
