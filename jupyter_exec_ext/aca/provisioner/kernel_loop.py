"""The thread in which all ACA kernels of a process live, on an event loop of their own.

Not on the loop of whoever starts them: a client that blocks (`BlockingKernelClient`, nbclient without a loop) would
wait for a kernel that waits for the client. The thread begins with the first kernel and ends with the last one, and
after what a kernel leaves to be done: to end its session on Azure.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

import zmq

from ...client.fork_safety import ProcessLock

T = TypeVar("T")
_MAX_SOCKETS = 65_535
# For what is left to be done. Sessions that nobody ends are ended by their pool, and cost until then.
_LEAVE_SECONDS = 60.0
_EXIT_SECONDS = 10.0  # of these, how long a process that ends waits

_log = logging.getLogger(__name__)


class KernelLoop:
    """An event loop in a thread, and what kernels share on it; its methods but `run` are called in it."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.max_sockets = _MAX_SOCKETS
        self.users = 0
        self._shared: dict[Hashable, Any] = {}
        self._left: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="aca-kernels", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            with self._closing:  # what was begun meanwhile ends, too, and nothing can be begun that nobody would end
                self._loop.run_until_complete(_cancel_all())
                self._loop.close()
            self.context.term()

    async def _end(self) -> None:
        if self._left:
            await asyncio.wait(self._left, timeout=_LEAVE_SECONDS)
        await _cancel_all()
        for shared in self._shared.values():
            await shared.aclose()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run something in the thread; with the end of the thread it is cancelled.

        Raises
        ------
        RuntimeError
            If the thread has ended.
        """
        with self._closing:
            if self._loop.is_closed():
                coroutine.close()
                raise RuntimeError("the loop of ACA kernels has ended")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Let the thread end; what is left to be done is still done."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        """Wait for the end of the thread, but not for long."""
        self._thread.join(_EXIT_SECONDS)

    # --- in the thread ---

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what kernels that are alike have in common, made by the first of them."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def leave(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for; what it fails with is logged."""
        task = self._loop.create_task(coroutine)
        self._left.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._left.discard(task)
        problem = "it took too long" if task.cancelled() else task.exception()
        if problem is not None:
            _log.warning("an ACA session was not ended; it ends after its pool's idle time: %s", problem)


async def _cancel_all() -> None:
    """Cancel what still runs in the loop: whoever waits for it in another one would wait for ever."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_lock = ProcessLock()
_loops: dict[int, KernelLoop] = {}  # by process: a forked one has no threads of its parent's
_ending: list[KernelLoop] = []


def use_loop() -> KernelLoop:
    """Return the loop, for one more kernel."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = KernelLoop()
        loop.users += 1
        return loop


def leave_loop(loop: KernelLoop) -> None:
    """Take note that a kernel uses the loop no more."""
    with _lock:
        loop.users -= 1
        if loop.users == 0:
            _loops.pop(os.getpid(), None)
            _ending[:] = [*(other for other in _ending if other._thread.is_alive()), loop]
            loop.stop()


@atexit.register
def _wait_for_the_end() -> None:
    # Daemons are stopped with the process: sessions that are just being ended would go on, and cost.
    for loop in _ending:
        loop.join()
