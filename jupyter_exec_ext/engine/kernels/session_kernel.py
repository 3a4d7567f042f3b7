"""Kernel of a session: started, connected, revived after a death, restarted and shut down.

A change of the kernel holds `lock`. A task inside a kernel manager is never cancelled: half a restart leaves a manager
that can neither restart nor shut down, and with it a server that cannot stop. Closing waits for the lock instead. Only
the wait for a kernel's first answer, which is ours, is cut short.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import zmq

from ...errors import Conflict, KernelNotFound, KernelStartFailed, SessionEnded
from ...models import OutputEvent
from ...protocol.kernel_messages import KernelMessage
from ...system.resources import is_out_of_resources, make_resources_error
from ..ports import Kernel, KernelExit, KernelLaunch, KernelOwner, KernelReceiver, NoObserver
from .death_report import Death
from .kernel_connection import KernelConnection
from .kernel_processes import HealthWatch, ask_to_exit, end_left_behind, kill_kernel
from .kernel_start import KernelNetwork, KernelStarter

# Jupyter chooses a kernel's ports before the kernel takes them. Another process may be faster, and the kernel exits so.
_LOST_ITS_PORT = KernelExit(exit_code=1)

T = TypeVar("T")


class SessionKernel:
    """At most one kernel, and a checked connection to it while it lives.

    Attributes
    ----------
    receiver : KernelReceiver
        Gets the kernel's messages and exits.
    owner : KernelOwner
        Is notified of connections and of a removal.
    """

    def __init__(self, starter: KernelStarter, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self.receiver: KernelReceiver = NoObserver()
        self.owner: KernelOwner = NoObserver()
        self.lock = asyncio.Lock()
        self.kernel: Kernel | None = None
        self.connection: KernelConnection | None = None
        self.starts = 0
        self._starter, self._log = starter, log
        self._loop = asyncio.get_running_loop()
        self._answers_while_busy = False
        self._unwatch_exit: Callable[[], None] | None = None
        self._failed_start: KernelExit | None = None
        self._given_up: asyncio.Future[None] = self._loop.create_future()
        self._host_watch: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process of the connected kernel, if it is one of this machine."""
        return None if self.connection is None or self.kernel is None else self.kernel.pid

    async def ensure(self) -> None:
        """Make sure of a checked connection to a living kernel, starting a fresh one if need be.

        Raises
        ------
        TooManyKernels, KernelStartFailed, KernelStartTimeout
        SessionEnded
            If it was given up meanwhile.
        """
        async with self.lock:
            await self._ensure()

    async def _ensure(self) -> None:
        if self.connection is not None and self.kernel is not None:
            await self._starter.announce(self.kernel)  # of the warm pool, perhaps
            return
        if self._given_up.done():
            raise _given_up_error()
        kernel = self.kernel
        if kernel is not None and kernel.traits.is_shared:
            await self.unless_given_up(self._until_restarted(kernel))
            await self._connect(kernel)
            return
        if kernel is not None and kernel.being_shut_down:
            await kernel.settled()
        if kernel is None or not kernel.present:
            if kernel is not None:
                await kernel.shutdown(now=True)  # the host has removed it; ends what is left of it here
            await self._start_new()
            return
        if not await kernel.alive():
            await self._end_left_behind()
            await self._starter.prepare_directory()
            await kernel.restart(now=True)
        await self._connect(kernel)

    async def _until_restarted(self, kernel: Kernel) -> None:
        """Wait until a shared kernel runs again, if its user or its host restarts it."""
        try:
            if not kernel.present or kernel.being_shut_down or not await kernel.alive():
                await kernel.restart(now=False)
        except KernelNotFound:
            self._watch_host(kernel)  # the session ends
            raise

    async def renew(self, launch: KernelLaunch | None = None) -> None:
        """Give the session a fresh kernel process, or with `launch` one from a checkpoint. The caller holds `lock`."""
        kernel, has_connection = self.kernel, self.connection is not None
        if kernel is not None and kernel.present and (has_connection or launch is not None):
            # What a state that is given up would do at its end is not wanted any more.
            now = launch is not None or await self._ask_to_exit(kernel, restart=True)
            self.disconnect()
            await self._starter.prepare_directory()
            await kernel.restart(now=now, launch=launch)
            await self._connect(kernel)
        elif launch is None:
            await self._ensure()
        else:
            raise Conflict("the session has no kernel that could be restored; its host has shut it down")

    async def _start_new(self) -> None:
        self._failed_start = None
        try:
            await self._connect_new(await self._starter.launch())
        except KernelStartFailed as error:
            if self._failed_start != _LOST_ITS_PORT:
                raise
            self._log.warning("session %s: %s; trying once more", self._starter.session_id, error.message)
            await self._connect_new(await self._starter.launch())

    async def _connect_new(self, kernel: Kernel) -> None:
        """Adopt a kernel that was just started; one that does not answer is not left behind."""
        self.kernel = kernel
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._end_left_behind)  # runs last: the kernel itself has the mark, too
            undo.push_async_callback(kernel.shutdown, now=True)
            await self._starter.announce(kernel)
            await self._connect(kernel)
            undo.pop_all()

    async def _connect(self, kernel: Kernel) -> None:
        died: asyncio.Future[KernelExit] = self._loop.create_future()

        def on_exit(exit_: KernelExit) -> None:
            if not died.done():
                died.set_result(exit_)
            self._on_exit(kernel, exit_)

        try:
            self.connection = self._starter.open(kernel, self)
            self._unwatch_exit = kernel.watch_exit(on_exit)
        except (OSError, zmq.ZMQError) as error:
            self.disconnect()
            raise (make_resources_error(error) if is_out_of_resources(error) else error) from error
        check = self._loop.create_task(self._starter.check(kernel, self.connection, is_first=not self.starts))
        # Without `died`, a kernel that ends at once would be waited for until its start timeout.
        any_of: list[asyncio.Future[Any]] = [check, died, self._given_up]
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._abandon, check)
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            if self._given_up.done():
                raise _given_up_error()
            await self._require_alive(died, kernel)
            await check
            kernel.note_activity("idle")
            self.starts += 1
            await self.owner.on_connected(kernel.kernel_id, self.starts)
            await self._require_alive(died, kernel)  # to the last: a waiting execution uses the kernel at once
            undo.pop_all()

    async def _abandon(self, check: asyncio.Task[None]) -> None:
        """End the check of a connection that is not to be used, and the connection."""
        check.cancel()
        await asyncio.wait([check])  # unlike `await check`, it raises nothing
        if not check.cancelled():
            check.exception()  # it failed for the same reason, or too late to matter
        self.disconnect()

    def on_message(self, message: KernelMessage) -> None:
        """Pass a message on, and report to the host what it says about the kernel's state."""
        if self.kernel is not None and message.msg_type == "status" and message.parent_type == "execute_request":
            self.kernel.note_activity(str(message.content.get("execution_state")))
        self.receiver.on_message(message)

    def on_too_large(self, reason: str) -> None:
        """Pass on that a message was left out because of its size."""
        self.receiver.on_too_large(reason)

    async def _require_alive(self, died: asyncio.Future[KernelExit], kernel: Kernel) -> None:
        if died.done():
            self._failed_start = died.result()  # `_start_new` tries again after some of these
            words = await asyncio.to_thread(kernel.last_words)
            reason = f":\n{words}" if words else "; see the server's log"
            raise KernelStartFailed(f"kernel {self._starter.name!r} {died.result()} while it started{reason}")

    # --- the warm pool ---

    @property
    def language(self) -> str:
        """The kernel's language. Where its kernelspec names none, it is known once the kernel has answered."""
        return self._starter.language

    @property
    def setups(self) -> Sequence[str]:
        """The ids of the requests by which the present kernel was told to run our set-up code."""
        return self._starter.setups

    def adopt(
        self, packages_code: str | None, setup_code: str | None, title: str, network: KernelNetwork | None
    ) -> None:
        """Belong to a session from now on; a kernel of the warm pool is enlisted already. See `KernelStarter`."""
        self._starter.aside, self._starter.title, self._starter.network = None, title, network
        if self.kernel is not None:
            self._starter.serve_network(self.kernel)
        self._starter.use_packages(packages_code, self.connection)
        self._starter.use_setup(setup_code, self.connection)

    def use_packages(self, code: str) -> None:
        """Have the kernel run the code that gives it packages, now and each time that it has started."""
        self._starter.use_packages(code, self.connection)

    def warm_up(self) -> None:
        """Have the connected kernel do once what takes longer the first time; its user sees nothing of it."""
        self._starter.warm_up(self.connection)

    async def unless_given_up(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which waits for others; cancel it if the session ends meanwhile."""
        task = self._loop.create_task(work)
        any_of: list[asyncio.Future[Any]] = [task, self._given_up]
        try:
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _given_up_error()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    # --- health and end ---

    def watch_health(self, emit: Callable[[OutputEvent], None]) -> HealthWatch | None:
        """Watch the connected kernel while it runs something; close the watch at the end.

        None for a shared kernel: each question makes its user's notebook show it as idle for a moment.
        """
        kernel, connection = self.kernel, self.connection
        assert kernel is not None and connection is not None
        if kernel.traits.is_shared:
            return None
        return HealthWatch(
            connection,
            kernel,
            emit,
            answers_while_busy=self._answers_while_busy or self._starter.is_python,
            on_answer=self._note_answer,
        )

    def _note_answer(self) -> None:
        self._answers_while_busy = True

    async def explain(self, exit_: KernelExit) -> Death:
        """Find out why the kernel died."""
        killed_by_us = self.kernel is not None and self.kernel.being_shut_down
        return await asyncio.to_thread(self._starter.evidence.explain, exit_, killed_by_us=killed_by_us)

    async def _ask_to_exit(self, kernel: Kernel, *, restart: bool) -> bool:
        self._stop_watching_exit()
        return await ask_to_exit(kernel, self.connection, restart=restart)

    async def _end_left_behind(self) -> None:
        if self._starter.attach_to is None:
            await end_left_behind(self._starter.session_id, self._log)

    def abandon(self) -> None:
        """End a kernel whose run did not end by itself, without waiting for that."""
        self.disconnect()
        if self.kernel is not None:
            self._cleaning = self._loop.create_task(kill_kernel(self.kernel, self._log))

    def disconnect(self) -> None:
        """Close the connection; the kernel goes on."""
        self._stop_watching_exit()
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _stop_watching_exit(self) -> None:
        if self._unwatch_exit is not None:
            self._unwatch_exit()
            self._unwatch_exit = None

    def _on_exit(self, kernel: Kernel, exit_: KernelExit) -> None:
        self.receiver.on_exit(exit_)
        # Our own restart or shutdown holds the lock. Without it, another client of the host is ending the kernel.
        if kernel.traits.is_shared or (kernel.being_shut_down and not self.lock.locked()):
            self._watch_host(kernel)
        elif not kernel.being_shut_down:
            self._cleaning = self._loop.create_task(self._clean_up_after(kernel))

    async def _clean_up_after(self, kernel: Kernel) -> None:
        """End the processes of a kernel that died by itself, unless a run or a revival does so."""
        async with self.lock:
            if self.connection is None and kernel.present and not kernel.being_shut_down and not await kernel.alive():
                await self._end_left_behind()

    def _watch_host(self, kernel: Kernel) -> None:
        if self._host_watch is not None:
            self._host_watch.cancel()
        self._host_watch = self._loop.create_task(self._follow_host(kernel))

    async def _follow_host(self, kernel: Kernel) -> None:
        """Wait for what another client does to the kernel: a restart keeps the session, a shutdown ends it."""
        await kernel.settled()
        if not kernel.present and kernel is self.kernel and not self._given_up.done():
            await self.owner.on_removed(kernel.removal_reason)

    def touch(self) -> None:
        """Report to the host that the kernel is in use."""
        if self.kernel is not None:
            self.kernel.note_activity()

    def give_up(self) -> None:
        """Start and connect no more, and end each wait for a kernel's first answer."""
        if not self._given_up.done():
            self._given_up.set_result(None)

    async def shutdown(self, *, now: bool) -> None:
        """End the kernel; with `now`, without asking it to exit. A shared one is only disconnected."""
        self.give_up()  # first: a start that waits for an answer holds the lock
        if self._host_watch is not None:
            self._host_watch.cancel()
        async with self.lock:
            kernel = self.kernel
            if kernel is not None and not kernel.traits.is_shared and not now:
                now = await self._ask_to_exit(kernel, restart=False)
            self.disconnect()
            if kernel is not None:
                await kernel.shutdown(now=now)
                await self._end_left_behind()
            await asyncio.to_thread(self._starter.evidence.close)


def _given_up_error() -> SessionEnded:
    return SessionEnded("the session is being shut down; create a new one")
