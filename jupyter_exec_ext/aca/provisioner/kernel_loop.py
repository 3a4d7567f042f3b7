"""Event loop in a thread for all ACA kernels of a process.

Kernels do not use the loop of their starter: a client that blocks (`BlockingKernelClient`, nbclient without a loop)
would wait for a kernel that waits for the client. The thread starts with the first kernel. It ends after the last
kernel and its background work, which is to end sessions on Azure.
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
# Time limit of background work. Sessions that are not ended cost money until their pool ends them.
_BACKGROUND_SECONDS = 60.0
_EXIT_SECONDS = 10.0  # of these, how long the exit of the process waits

_log = logging.getLogger(__name__)


class KernelLoop:
    """An event loop in a thread, with objects that kernels share."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.max_sockets = _MAX_SOCKETS
        self.users = 0
        self._shared: dict[Hashable, Any] = {}
        self._background: set[asyncio.Task[None]] = set()
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
            with self._closing:  # cancels work that came meanwhile, and refuses more: nothing would finish it
                self._loop.run_until_complete(_cancel_all())
                self._loop.close()
            self.context.term()

    async def _end(self) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=_BACKGROUND_SECONDS)
        await _cancel_all()
        for shared in self._shared.values():
            await shared.aclose()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread; the end of the thread cancels it.

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
        """End the thread after its background work."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        """Wait for the end of the thread, for at most `_EXIT_SECONDS`."""
        self._thread.join(_EXIT_SECONDS)

    # --- called in the thread ---

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the shared object of kernels with the same key, made by the first of them."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that no caller awaits; log its failure."""
        task = self._loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        problem = "it took too long" if task.cancelled() else task.exception()
        if problem is not None:
            _log.warning("an ACA session was not ended; it ends after its pool's idle time: %s", problem)


async def _cancel_all() -> None:
    """Cancel all tasks of the loop: a caller that awaits one from another loop would hang."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_lock = ProcessLock()
_loops: dict[int, KernelLoop] = {}  # by process id: a forked process has no threads of its parent
_ending: list[KernelLoop] = []


def acquire_loop() -> KernelLoop:
    """Return the loop, for one more kernel; start it for the first."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = KernelLoop()
        loop.users += 1
        return loop


def release_loop(loop: KernelLoop) -> None:
    """Count one kernel less; end the loop after the last."""
    with _lock:
        loop.users -= 1
        if loop.users == 0:
            _loops.pop(os.getpid(), None)
            _ending[:] = [*(other for other in _ending if other._thread.is_alive()), loop]
            loop.stop()


@atexit.register
def _join_ending_loops() -> None:
    # Daemon threads stop with the process: sessions that are being ended would live on, and cost money.
    for loop in _ending:
        loop.join()
