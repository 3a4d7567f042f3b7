"""A session's kernel: started, connected, revived after a death, restarted and shut down.

Whoever changes the kernel holds `lock`. A task inside a kernel manager is never cancelled: half a restart leaves a
manager that can neither restart nor shut down, and with it a server that cannot stop. Closing waits for the lock
instead; only the wait for a kernel's first answer, which is ours, is cut short.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import zmq

from ...errors import Conflict, KernelNotFound, KernelStartFailed, KernelStartTimeout, SessionEnded
from ...models import OutputEvent
from ...protocol.kernel_messages import KernelMessage, execute_request
from ...protocol.kernel_preparation import unattended_request
from ...protocol.languages import normalize_language
from ...system.exhaustion import exhausted, out_of_resources
from ...system.marked_processes import kill_left_behind, kill_marked
from ..ports import Kernel, KernelExit, KernelHost
from .death_report import CrashFile, Death, PostMortem, plain_death
from .kernel_connection import KernelConnection
from .kernel_health import HealthWatch
from .process_limits import ProcessLimits, limit_process
from .process_state import is_stopped
from .shared_resources import EngineResources
from .watchdog import MARGIN_SECONDS, WatchdogExpired, ends_within

# The kernels whose control channel is known to answer while code runs.
_ANSWERING_LANGUAGE = "python"
# A kernel that has no answer for this long will not exit politely either.
_POLITE_SECONDS = 1.0
# How long a kernel may take to exit that was asked to.
_EXIT_SECONDS = 2.5
# So long a kernel that runs already may take to answer somebody new.
_ATTACH_SECONDS = 10.0

T = TypeVar("T")

# Jupyter chooses a kernel's ports before the kernel takes them. Another process may be faster, and the kernel exits so.
_LOST_ITS_PORT = KernelExit(exit_code=1)


async def _ignore_connected(kernel_id: str, starts: int) -> None:
    pass


async def _ignore_removed() -> None:
    pass


@dataclass(frozen=True, slots=True)
class KernelListener:
    """Receiver of a kernel's events; the default ignores them.

    Parameters
    ----------
    on_message, on_exit : callable
        Called as it happens.
    on_too_large : callable
        Called with the reason when a message was left out because of its size.
    on_connected : coroutine function
        Awaited when a kernel process has answered, with the kernel's id and how many processes there have been.
    on_removed : coroutine function
        Awaited when somebody else has shut the kernel down.
    """

    on_message: Callable[[KernelMessage], None] = lambda message: None
    on_too_large: Callable[[str], None] = lambda reason: None
    on_exit: Callable[[KernelExit], None] = lambda exit_: None
    on_connected: Callable[[str, int], Awaitable[None]] = _ignore_connected
    on_removed: Callable[[], Awaitable[None]] = _ignore_removed


class SessionKernel:
    """At most one kernel, and a proven connection to it while it lives.

    Parameters
    ----------
    name : str
        The kernelspec.
    env : mapping
        The complete environment of the kernel's processes, the session's mark included.
    session_id : str
        What the mark says; processes that carry it end with the session.
    language : str
        The kernel's language, as its kernelspec names it: what the kernel can be asked and told depends on it.
    attach_to : str or None
        A kernel of somebody else's to use instead of one of the session's own, which is started.
    isolate : str or None
        The isolation to start it with where its kernelspec has none of its own.
    workdir : coroutine function
        Makes sure of the directory the kernel starts in and returns it; None for the host's own.
    aside : str or None
        The id of a kernel that is to be nobody's yet, until `adopt`.

    Attributes
    ----------
    listener : KernelListener
        Receives the kernel's events.
    setups : list of str
        The ids of the requests by which the present kernel was told to run our set-up code.
    language : str
        The kernel's language. Where its kernelspec names none, it is known once the kernel has answered.
    """

    def __init__(
        self,
        name: str,
        env: Mapping[str, str],
        *,
        session_id: str,
        language: str,
        attach_to: str | None,
        isolate: str | None,
        host: KernelHost,
        workdir: Callable[[], Awaitable[str | None]],
        resources: EngineResources,
        start_timeout_seconds: float,
        process_limits: ProcessLimits,
        log: logging.Logger | logging.LoggerAdapter[Any],
        aside: str | None = None,
    ) -> None:
        self.listener = KernelListener()
        self.lock = asyncio.Lock()
        self.setups: list[str] = []
        self._aside = aside
        self.kernel: Kernel | None = None
        self.connection: KernelConnection | None = None
        self.starts = 0
        self._name = name
        self._env = {**env, **process_limits.variables()}
        self._isolate = isolate
        self._setup_code: str | None = None
        self._attach_to = attach_to
        self._turn: asyncio.Lock | None = None
        self._host = host
        self._workdir = workdir
        self._session_id = session_id
        self.language = language
        self._answers_while_busy = False
        self._resources = resources
        self._post_mortem: PostMortem | None = None
        self._start_timeout = start_timeout_seconds
        self._process_limits = process_limits
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._unwatch_exit = _nothing
        self._failed_start: KernelExit | None = None
        self._given_up: asyncio.Future[None] = self._loop.create_future()
        self._host_watch: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None

    @property
    def _is_python(self) -> bool:
        return normalize_language(self.language) == _ANSWERING_LANGUAGE

    @property
    def pid(self) -> int | None:
        """The process of the connected kernel, if it is one of this machine."""
        return None if self.connection is None or self.kernel is None else self.kernel.pid

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
        if kernel is not None and not kernel.ours:
            await self._unless_given_up(self._until_restarted(kernel))
            await self._connect(kernel)
            return
        if kernel is not None and kernel.being_shut_down:
            await kernel.settled()
        if kernel is None or not kernel.present:
            await self._start_new()
            return
        if not await kernel.alive():
            await self._end_marked()
            await self._workdir()
            await kernel.restart(now=True)
        await self._connect(kernel)

    async def _until_restarted(self, kernel: Kernel) -> None:
        """Wait until a kernel that is not ours runs again, if its user or its host sees to that."""
        try:
            if not kernel.present or kernel.being_shut_down or not await kernel.alive():
                await kernel.restart(now=False)
        except KernelNotFound:
            self._watch_host(kernel)  # the session ends
            raise

    def adopt(self, setup_code: str | None) -> None:
        """Belong to a session from now on; a kernel that was started aside is enlisted already.

        Parameters
        ----------
        setup_code : str or None
            Code that the session's own kernels run, silently, before anything else.
        """
        self._aside = None
        self._setup_code = setup_code
        if setup_code is not None and self.connection is not None:
            self._set_up(self.connection, setup_code)

    # --- a kernel that others use, too ---

    async def ready(self) -> None:
        """Make sure of a kernel as `ensure` does, and that it has nothing else to do; `release` it afterwards.

        Code for a kernel of somebody else's waits here for its turn, since what the kernel has in its own queue cannot
        be taken back, nor be told from its user's code by an interrupt.

        Raises
        ------
        KernelNotFound
            If it was shut down, with which the session ends, too.
        """
        await self.ensure()
        assert self.kernel is not None
        if not self.kernel.ours:
            self._turn = await self._unless_given_up(self._take_turn(self.kernel.turn))

    async def _take_turn(self, turn: asyncio.Lock) -> asyncio.Lock:
        await turn.acquire()
        try:
            while self.connection is None or not await self.connection.has_turn():
                await self.ensure()
        except BaseException:
            turn.release()
            raise
        return turn

    def release(self) -> None:
        """Let others of our sessions use the kernel."""
        if self._turn is not None:
            self._turn.release()
            self._turn = None

    async def _unless_given_up(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that waits for others; if the session ends meanwhile, it is cancelled."""
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

    async def renew(self) -> None:
        """Give the session a fresh kernel process. The caller holds `lock`."""
        kernel = self.kernel
        if self.connection is not None and kernel is not None and kernel.present:
            now = await self._has_been_asked_to_exit(kernel, restart=True)
            self.disconnect()
            await self._workdir()
            await kernel.restart(now=now)
            await self._connect(kernel)
        else:
            await self._ensure()

    async def _start_new(self) -> None:
        self._failed_start = None
        try:
            await self._connect_new(await self._launch())
        except KernelStartFailed as error:
            if self._failed_start != _LOST_ITS_PORT:
                raise
            self._log.warning("session %s: %s; trying once more", self._session_id, error.message)
            await self._connect_new(await self._launch())

    async def _launch(self) -> Kernel:
        if self._attach_to is not None:
            return await self._host.attach(self._attach_to)
        return await self._host.start(self._name, self._env, await self._workdir(), self._isolate, aside=self._aside)

    async def _connect_new(self, kernel: Kernel) -> None:
        """Adopt a kernel that was just started; one that does not answer is not left behind."""
        self.kernel = kernel
        try:
            await self._connect(kernel)
        except BaseException:
            await kernel.shutdown(now=True)
            await self._end_marked()
            raise

    async def _connect(self, kernel: Kernel) -> None:
        died: asyncio.Future[KernelExit] = self._loop.create_future()

        def on_exit(exit_: KernelExit) -> None:
            if not died.done():
                died.set_result(exit_)
            self._on_exit(kernel, exit_)

        def on_message(message: KernelMessage) -> None:
            if message.msg_type == "status" and message.parent_type == "execute_request":
                kernel.note_state(str(message.content.get("execution_state")))
            self.listener.on_message(message)

        kernel.take_over_sockets()
        if not kernel.limits_itself:
            # On what is not ours no limit can be set; where there has to be one, this refuses.
            limit_process(kernel.pid if kernel.ours else None, self._process_limits)
        try:
            connection = KernelConnection(
                self._resources,
                kernel.connection_info(),
                on_message,
                on_too_large=lambda reason: self.listener.on_too_large(reason),
                # One that runs elsewhere hands over its output when a run has ended; there is nothing to wait for.
                can_wait=(self._is_python or not self.language) and kernel.ours and kernel.pid is not None,
                waits=kernel.waits_for_readers,
                draws_plots=not kernel.is_confined,
                may_be_busy=not kernel.ours,
            )
            self.connection = connection
            self._unwatch_exit = kernel.watch_exit(on_exit)
        except (OSError, zmq.ZMQError) as error:
            self.disconnect()
            raise (exhausted(error) if out_of_resources(error) else error) from error
        proof = self._loop.create_task(self._prove(connection, kernel))
        any_of: list[asyncio.Future[Any]] = [proof, died, self._given_up]
        try:
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            if self._given_up.done():
                raise _given_up_error()
            await self._require_alive(died, kernel)
            await proof
            kernel.note_state("idle")
            self.starts += 1
            await self.listener.on_connected(kernel.kernel_id, self.starts)
            await self._require_alive(died, kernel)  # to the last: whoever waits for the kernel uses it at once
        except BaseException:
            proof.cancel()
            await asyncio.wait([proof])
            if not proof.cancelled():
                proof.exception()  # it failed for the same reason, or too late to matter
            self.disconnect()
            raise

    async def _require_alive(self, died: asyncio.Future[KernelExit], kernel: Kernel) -> None:
        if died.done():
            self._failed_start = died.result()
            words = await asyncio.to_thread(kernel.last_words)
            reason = f":\n{words}" if words else "; see the server's log"
            raise KernelStartFailed(f"kernel {self._name!r} {died.result()} while it started{reason}")

    async def _prove(self, connection: KernelConnection, kernel: Kernel) -> None:
        """Prove the connection and, meanwhile, note what a death would be explained by."""
        evidence = self._loop.create_task(asyncio.to_thread(self._begin_post_mortem, kernel))
        try:
            if kernel.ours or self.starts:
                await connection.prove(self._start_timeout)
            else:
                await self._prove_running(connection)
        finally:
            self._post_mortem = await asyncio.shield(evidence)
        self.language = self.language or connection.language
        self.setups.clear()
        for setup in (self._post_mortem.setup_code, self._setup_code if kernel.ours else None):
            if setup is not None:
                self._set_up(connection, setup)
        # A kernel with files elsewhere runs code through a service, to which each request is a call.
        if kernel.ours and self._is_python and kernel.files is None:
            self.setups.append(connection.send("shell", "execute_request", unattended_request()))

    def warm_up(self) -> None:
        """Have the connected kernel do once what takes longer the first time; its user sees nothing of it."""
        if self.connection is not None and self._is_python:
            self._set_up(self.connection, "print()", silent=False)

    def _set_up(self, connection: KernelConnection, code: str, *, silent: bool = True) -> None:
        """Have the kernel run what is ours. Not waited for: it does so before whatever comes next."""
        request = {**execute_request(code, allow_input=False), "silent": silent, "store_history": False}
        self.setups.append(connection.send("shell", "execute_request", request))

    async def _prove_running(self, connection: KernelConnection) -> None:
        """Prove the first connection to a kernel that has been running; unlike one that starts, it answers at once."""
        try:
            await connection.prove(min(_ATTACH_SECONDS, self._start_timeout))
        except KernelStartTimeout:
            raise Conflict(
                "the kernel does not answer: it is just starting, or busy with code that lets it answer nobody; attach "
                "when it is idle"
            ) from None

    def _begin_post_mortem(self, kernel: Kernel) -> PostMortem:
        pid = kernel.pid
        if self._post_mortem is not None:
            self._post_mortem.close()
        if self.starts and pid is not None and kernel.ours:
            kill_left_behind(self._session_id, pid)
        if not self._is_python or pid is None or not kernel.ours:
            return PostMortem(pid, None)
        directory, name_inside = kernel.shared_directory or (self._resources.private_directory(), None)
        return PostMortem(pid, CrashFile(directory, name_inside))

    async def explain(self, exit_: KernelExit) -> Death:
        """Find out why the kernel died."""
        evidence, kernel = self._post_mortem, self.kernel
        if evidence is None or kernel is None:
            return plain_death(exit_)
        return await asyncio.to_thread(evidence.explain, exit_, killed_by_us=kernel.being_shut_down)

    # --- health ---

    def watch_health(self, emit: Callable[[OutputEvent], None]) -> HealthWatch | None:
        """Watch the connected kernel while it runs something; close the watch at the end.

        None for a kernel that is not ours: each question makes its user's notebook show it as idle for a moment.
        """
        kernel, connection = self.kernel, self.connection
        assert kernel is not None and connection is not None
        if not kernel.ours:
            return None

        def learn() -> None:
            self._answers_while_busy = True

        return HealthWatch(
            connection,
            lambda: is_stopped(kernel.pid),
            emit,
            answers_while_busy=self._answers_while_busy or self._is_python,
            on_answer=learn,
        )

    async def _will_exit_politely(self) -> bool:
        """Return False for a kernel that would let us wait in vain."""
        kernel = self.kernel
        if kernel is None or await asyncio.to_thread(is_stopped, kernel.pid):
            return False
        connection = self.connection
        if connection is None or not connection.answers_on_control:
            return True  # nothing is known
        return await connection.answers(_POLITE_SECONDS)

    async def _has_been_asked_to_exit(self, kernel: Kernel, *, restart: bool) -> bool:
        """Ask a kernel to exit and wait for that; return False for one of another machine, which its host has to ask.

        Not left to the host for the others: it would read what the kernel sends back, without a bound.
        """
        if not await self._will_exit_politely():
            return True
        if self.connection is None or kernel.pid is None:
            return False
        exited = asyncio.Event()
        self._unwatch_exit()
        self._unwatch_exit = kernel.watch_exit(lambda _: exited.set())
        self.connection.send("control", "shutdown_request", {"restart": restart})
        with suppress(asyncio.TimeoutError):  # then it is killed
            await asyncio.wait_for(exited.wait(), _EXIT_SECONDS)
        return True

    async def _end_marked(self) -> None:
        """End what the session's kernels have left behind. Only while none of them lives."""
        if self._attach_to is not None:
            return
        for pid in await asyncio.to_thread(kill_marked, {self._session_id}):
            self._log.info("session %s: ended process %d, which its kernel had left behind", self._session_id, pid)

    def abandon(self) -> None:
        """End a kernel whose run did not end by itself, without waiting for that."""
        self.disconnect()
        kernel = self.kernel
        if kernel is not None:
            self._cleaning = self._loop.create_task(self._kill(kernel))

    async def _kill(self, kernel: Kernel) -> None:
        try:
            await ends_within(MARGIN_SECONDS, kernel.kill())
        except WatchdogExpired:
            self._log.exception("kernel %s could not be ended", kernel.kernel_id)

    def disconnect(self) -> None:
        """Close the connection; the kernel goes on."""
        self._unwatch_exit()
        self._unwatch_exit = _nothing
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _on_exit(self, kernel: Kernel, exit_: KernelExit) -> None:
        self.listener.on_exit(exit_)
        if not kernel.ours or (kernel.being_shut_down and not self.lock.locked()):
            self._watch_host(kernel)
        elif not kernel.being_shut_down:
            self._cleaning = self._loop.create_task(self._clean_up_after(kernel))

    def _watch_host(self, kernel: Kernel) -> None:
        if self._host_watch is not None:
            self._host_watch.cancel()
        self._host_watch = self._loop.create_task(self._see_what_the_host_does(kernel))

    async def _clean_up_after(self, kernel: Kernel) -> None:
        """A kernel died by itself: end what it left behind, unless a run or a revival sees to that."""
        async with self.lock:
            if self.connection is None and kernel.present and not kernel.being_shut_down and not await kernel.alive():
                await self._end_marked()

    async def _see_what_the_host_does(self, kernel: Kernel) -> None:
        """Somebody else ends our kernel: with a restart the session goes on, with a shutdown it ends."""
        await kernel.settled()
        if not kernel.present and kernel is self.kernel and not self._given_up.done():
            await self.listener.on_removed()

    def touch(self) -> None:
        """Tell the host that the kernel is in use."""
        if self.kernel is not None:
            self.kernel.touch()

    def give_up(self) -> None:
        """Start and connect no more; whoever waits for a kernel's first answer stops waiting."""
        if not self._given_up.done():
            self._given_up.set_result(None)

    async def shutdown(self, *, now: bool) -> None:
        """End the kernel; with `now`, without asking it to exit. From one that is not ours we only part."""
        self.give_up()
        if self._host_watch is not None:
            self._host_watch.cancel()
        async with self.lock:
            kernel = self.kernel
            if kernel is not None and kernel.ours and not now:
                now = await self._has_been_asked_to_exit(kernel, restart=False)
            self.disconnect()
            if kernel is not None:
                await kernel.shutdown(now=now)
                await self._end_marked()
            if self._post_mortem is not None:
                await asyncio.to_thread(self._post_mortem.close)


def _given_up_error() -> SessionEnded:
    return SessionEnded("the session is being shut down; create a new one")


def _nothing() -> None:
    pass
