"""A session's kernel: started, connected, revived after a death, restarted and shut down.

Whoever changes the kernel holds `lock`. A task inside a kernel manager is never cancelled: half a restart leaves a
manager that can neither restart nor shut down, and with it a server that cannot stop. Closing waits for the lock
instead; only the wait for a kernel's first answer, which is ours, is cut short.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import zmq

from ..errors import KernelStartFailed, SessionEnded
from ..wire.kernel import KernelMessage
from .connection import KernelConnection
from .ports import Kernel, KernelExit, KernelHost


@dataclass(frozen=True, slots=True)
class KernelListener:
    """What a session wants to hear of its kernel.

    Parameters
    ----------
    on_message, on_exit : callable
        Called as it happens.
    on_connected : coroutine function
        Awaited when a kernel process has answered, with the kernel's id and how many processes there have been.
    on_removed : coroutine function
        Awaited when somebody else has shut the kernel down.
    """

    on_message: Callable[[KernelMessage], None]
    on_exit: Callable[[KernelExit], None]
    on_connected: Callable[[str, int], Awaitable[None]]
    on_removed: Callable[[], Awaitable[None]]


class SessionKernel:
    """At most one kernel, and a proven connection to it while it lives.

    Parameters
    ----------
    name : str
        The kernelspec.
    env : mapping
        The complete environment of the kernel's processes.
    workdir : coroutine function
        Makes sure of the directory the kernel starts in and returns it; None for the host's own.
    """

    def __init__(
        self,
        name: str,
        env: Mapping[str, str],
        *,
        host: KernelHost,
        workdir: Callable[[], Awaitable[str | None]],
        context: zmq.Context[zmq.Socket[bytes]],
        start_timeout_seconds: float,
        listener: KernelListener,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.lock = asyncio.Lock()
        self.kernel: Kernel | None = None
        self.connection: KernelConnection | None = None
        self.starts = 0
        self._name = name
        self._env = env
        self._host = host
        self._workdir = workdir
        self._context = context
        self._start_timeout = start_timeout_seconds
        self._listener = listener
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._unwatch_exit = _nothing
        self._given_up: asyncio.Future[None] = self._loop.create_future()
        self._host_watch: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Make sure of a proven connection to a living kernel, starting a fresh one if need be.

        Raises
        ------
        TooManyKernels, KernelStartFailed, KernelStartTimeout
        SessionEnded
            If it was given up meanwhile.
        """
        async with self.lock:
            await self._ensure()

    async def _ensure(self) -> None:
        if self.connection is not None:
            return
        if self._given_up.done():
            raise _given_up_error()
        kernel = self.kernel
        if kernel is not None and kernel.being_shut_down:
            await kernel.settled()
        if kernel is None or not kernel.present:
            await self._connect_new(await self._host.start(self._name, self._env, await self._workdir()))
            return
        if not await kernel.alive():
            await self._workdir()
            await kernel.restart(now=True)
        await self._connect(kernel)

    async def renew(self) -> None:
        """Give the session a fresh kernel process. The caller holds `lock`."""
        kernel = self.kernel
        if self.connection is not None and kernel is not None and kernel.present:
            self.disconnect()
            await self._workdir()
            await kernel.restart(now=False)
            await self._connect(kernel)
        else:
            await self._ensure()

    async def _connect_new(self, kernel: Kernel) -> None:
        """Adopt a kernel that was just started; one that does not answer is not left behind."""
        self.kernel = kernel
        try:
            await self._connect(kernel)
        except BaseException:
            await kernel.shutdown(now=True)
            raise

    async def _connect(self, kernel: Kernel) -> None:
        died: asyncio.Future[KernelExit] = self._loop.create_future()

        def on_exit(exit_: KernelExit) -> None:
            if not died.done():
                died.set_result(exit_)
            self._on_exit(kernel, exit_)

        connection = KernelConnection(self._context, kernel.connection_info(), self._listener.on_message, self._log)
        self.connection, self._unwatch_exit = connection, kernel.watch_exit(on_exit)
        proof = self._loop.create_task(connection.prove(self._start_timeout))
        any_of: list[asyncio.Future[Any]] = [proof, died, self._given_up]
        try:
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            if self._given_up.done():
                raise _given_up_error()
            if died.done():
                raise KernelStartFailed(f"kernel {self._name!r} {died.result()} while it started; see the server's log")
            await proof
        except BaseException:
            proof.cancel()
            self.disconnect()
            raise
        died.cancel()
        self.starts += 1
        await self._listener.on_connected(kernel.kernel_id, self.starts)

    def disconnect(self) -> None:
        """Close the connection; the kernel goes on."""
        self._unwatch_exit()
        self._unwatch_exit = _nothing
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _on_exit(self, kernel: Kernel, exit_: KernelExit) -> None:
        self._listener.on_exit(exit_)
        if kernel.being_shut_down and not self.lock.locked():
            self._host_watch = self._loop.create_task(self._see_what_the_host_does(kernel))

    async def _see_what_the_host_does(self, kernel: Kernel) -> None:
        """Somebody else ends our kernel: with a restart the session goes on, with a shutdown it ends."""
        await kernel.settled()
        if not kernel.present and kernel is self.kernel and not self._given_up.done():
            await self._listener.on_removed()

    def touch(self) -> None:
        """Tell the host that the kernel is in use."""
        if self.kernel is not None:
            self.kernel.touch()

    def give_up(self) -> None:
        """Start and connect no more; whoever waits for a kernel's first answer stops waiting."""
        if not self._given_up.done():
            self._given_up.set_result(None)

    async def shutdown(self, *, now: bool) -> None:
        """End the kernel; with `now`, without asking it to exit."""
        self.give_up()
        if self._host_watch is not None:
            self._host_watch.cancel()
        async with self.lock:
            self.disconnect()
            if self.kernel is not None:
                await self.kernel.shutdown(now=now)


def _given_up_error() -> SessionEnded:
    return SessionEnded("the session is being shut down; create a new one")


def _nothing() -> None:
    pass
