"""Kernel of a host's multi-kernel manager, with the interface that the engine needs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any, cast

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_core.utils import ensure_async

from ...errors import IsolationRequired
from ..ports import KernelExit, KernelLaunch, KernelTraits
from .checkpoint_support import find_checkpoint_support
from .death_report import KernelStderr
from .kernel_supervisor import end_of, watch_exit
from .kernel_use_marks import KernelUseMarks
from .provisioners import ISOLATABLE, provisioner_name
from .restored_launch import RestoredLaunch

_SETTLE_POLL_SECONDS, _SETTLE_LIMIT_SECONDS = 0.05, 30.0
_KILL_POLL_SECONDS, _KILL_LIMIT_SECONDS = 0.002, 5.0
_TOUCH_AGAIN_SECONDS = 0.1  # no culler counts so exactly, and a short run begins and ends within it


class HostedKernel:
    """A kernel of the host's multi-kernel manager, started for a session.

    Parameters
    ----------
    uses : KernelUseMarks
        Uses of the host's kernels.
    aside : set of str, optional
        The ids of those that are kept aside, in which it is to note that it is no longer.
    stderr : KernelStderr, optional
        The standard error that its process was started with.
    launch : KernelLaunch, optional
        What has made its process, if that has a state already.
    """

    def __init__(
        self,
        manager: MultiKernelManager,
        kernel_id: str,
        uses: KernelUseMarks,
        aside: set[str] | None = None,
        stderr: KernelStderr | None = None,
        launch: KernelLaunch | None = None,
    ) -> None:
        self._stderr = launch.stderr if isinstance(launch, RestoredLaunch) else stderr
        self._is_restored = launch is not None  # then it was told to wait for its readers before it began
        self._uses = uses
        self._user: object = kernel_id
        self._aside: set[str] = set() if aside is None else aside
        self._hidden, self._touch_again_at = False, 0.0
        self._manager, self._kernel_id = manager, kernel_id
        self._km = cast(AsyncKernelManager, manager.get_kernel(kernel_id))

    def take_over_restarts(self) -> None:
        """Turn the automatic restarter off: it would race with the supervisor, which knows why a kernel died."""
        # In this order: jupyter_client's `stop_restarter` does nothing once `autorestart` is off.
        self._km.stop_restarter()
        self._km.autorestart = False

    def forget_stderr(self) -> None:
        """Leave the descriptor that the process was started with to the process.

        The manager would start the next process with it, when its number may be another file's.
        """
        if self._stderr is not None:
            (self._km._launch_args or {}).pop("stderr", None)
            self._stderr.close_write_end()

    async def started(self) -> None:
        """Wait for what goes on in the background: in the manager (its pending kernels), and in a forked kernel."""
        ready = getattr(self._km, "ready", None)
        # Managers differ: `ready` is a future of asyncio, or of threads, or is not there.
        if isinstance(ready, concurrent.futures.Future):
            await asyncio.wrap_future(ready)
        elif ready is not None:
            await ready
        until_begun = getattr(self._km.provisioner, "until_begun", None)
        if until_begun is not None:
            await until_begun()

    # --- kept aside: a server that has such kernels alone has none that it lists, culls, or is busy with ---

    def set_aside(self, active_at: datetime | None) -> None:
        """Take it out of the host's list, and let the host see nothing of what it does.

        `active_at` is the host's last activity before this kernel was started. It is restored if the host has already
        seen a message of this kernel, so that filling the pool does not count as activity.
        """
        stream = getattr(self._km, "_activity_stream", None)
        if stream is not None:
            stream.on_recv(None)
        manager: Any = self._manager
        if active_at is not None and manager.last_kernel_activity == getattr(self._km, "last_activity", None):
            manager.last_kernel_activity = active_at
        self._manager.remove_kernel(self._kernel_id)
        self._hidden = True

    def enlist(self) -> None:
        """Put it into the host's list, as one that was just started."""
        # First: `note_activity` does nothing for a kernel that is kept aside.
        self._aside.discard(self._kernel_id)
        self._touch_again_at = 0.0  # or `note_activity` could skip this one
        self.begin_use()
        self._put_back()
        self.note_activity()

    def begin_use(self) -> None:
        """Count it as used, until `shutdown`."""
        self._uses.begin(self._kernel_id, self._user)

    async def list_as(self, session_id: str, name: str) -> None:
        """Show the host's other clients a server session of this name on it, until `shutdown`."""
        await self._uses.list_as(self._kernel_id, self._user, session_id, name)

    def _put_back(self) -> None:
        self._hidden = False
        self._manager._kernels[self._kernel_id] = self._km  # jupyter_client has no method for it

    @property
    def kernel_id(self) -> str:
        """The host's id of the kernel."""
        return self._kernel_id

    @property
    def present(self) -> bool:
        """True if the host still has the kernel, alive or dead."""
        return self._hidden or self._in_list

    @property
    def _in_list(self) -> bool:
        return self._kernel_id in self._manager and self._manager.get_kernel(self._kernel_id) is self._km

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine; a provisioner may number processes of another."""
        provisioner = self._km.provisioner
        process = getattr(provisioner, "process", None)
        if not isinstance(process, subprocess.Popen):
            return None
        inner: int | None = getattr(provisioner, "kernel_pid", None)  # where the process is what holds the kernel
        return process.pid if inner is None else inner

    @property
    def provisioner_name(self) -> str:
        """Name of the provisioner in its kernelspec."""
        spec = self._km.kernel_spec
        return provisioner_name(None if spec is None else spec.metadata)

    @property
    def traits(self) -> KernelTraits:
        """Its fixed properties, by its kernelspec and its provisioner."""
        spec, provisioner = self._km.kernel_spec, self._km.provisioner
        return KernelTraits(
            limits_itself=bool(getattr(provisioner, "limits_processes", False)),
            is_confined=self.provisioner_name not in ISOLATABLE,
            waits_for_readers=self._is_restored or bool(getattr(provisioner, "waits_for_readers", False)),
            interrupts_by_message=spec is not None and spec.interrupt_mode == "message",
            shared_directory=getattr(provisioner, "shared_directory", None),
            files=getattr(provisioner, "files", None),
            network_listener=getattr(provisioner, "network_listener", None),
            checkpoints=find_checkpoint_support(self._km),
            has_state=self._is_restored,
        )

    def last_words(self) -> str:
        """Return the end of what its process has printed, where that is kept; blocks for up to a second."""
        if self._stderr is not None:
            return self._stderr.last_words
        kept = getattr(self._km.provisioner, "last_words", None)
        return "" if kept is None else str(kept())

    async def require_level(self, level: str) -> None:
        """End the kernel if it was not started with a level of isolation; raises `IsolationRequired`."""
        if getattr(self._km.provisioner, "level", "none") != level:
            await self.shutdown(now=True)
            raise IsolationRequired(
                f"the kernel was not started with the isolation {level!r}; this host starts its own"
            )

    @property
    def being_shut_down(self) -> bool:
        """True if the host is ending its process on purpose."""
        return bool(self._km.shutting_down)

    @property
    def removal_reason(self) -> str:
        """Probable reason for which another client has shut it down."""
        return self._uses.removal_reason(self._km)

    async def alive(self) -> bool:
        """Return whether the kernel's process runs."""
        return bool(await ensure_async(self._km.is_alive()))

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        """Call `on_exit` once when the present process ends; the returned function ends the watch."""

        def ended(exit_: KernelExit) -> None:
            self._mark("dead")
            on_exit(exit_)

        assert self._km.provisioner is not None
        return watch_exit(self._km.provisioner, ended)

    async def interrupt(self) -> None:
        """Send the running code the signal to stop; a kernel that wants a message is sent that by its connection."""
        await ensure_async(self._km.interrupt_kernel())

    async def kill(self) -> None:
        """End the process at once and wait until it has ended; the host keeps the kernel.

        The host may start another process meanwhile, which is none of ours to end or to wait for.
        """
        provisioner = self._km.provisioner
        if provisioner is None or not provisioner.has_process:
            return
        has_ended = end_of(provisioner)  # before the kill: it holds on to the present process
        await provisioner.kill(restart=True)  # the provisioner stays usable for a next start
        give_up_at = asyncio.get_running_loop().time() + _KILL_LIMIT_SECONDS
        while asyncio.get_running_loop().time() < give_up_at:
            if await has_ended():
                return
            await asyncio.sleep(_KILL_POLL_SECONDS)

    async def restart(self, *, now: bool, launch: KernelLaunch | None = None) -> None:
        """Start a fresh process under the same id; see `Kernel`."""
        self._mark("restarting")
        options: dict[str, Any] = {"now": now}
        before = self._stderr
        with ExitStack() as undo:
            if isinstance(launch, RestoredLaunch) and launch.is_in_sandbox:
                self._is_restored = True
                # Not by the manager, which would end the sandbox.
                await launch.replace_kernel_of(self._km.provisioner, self.kill)
                self._mark("starting")
                return
            if isinstance(launch, RestoredLaunch):
                undo.enter_context(launch.replacing(self._km.provisioner))
                self._stderr = launch.stderr
                await self.kill()  # jupyter_client would look for its end every tenth of a second
            elif before is not None:
                self._stderr = KernelStderr()
                options["stderr"] = self._stderr.for_kernel
            self._is_restored = launch is not None
            await self._restart(options, before)

    async def _restart(self, options: Mapping[str, Any], before: KernelStderr | None) -> None:
        try:
            # Not the multi-kernel manager's: Jupyter Server's also opens a shell channel and asks the kernel.
            await ensure_async(self._km.restart_kernel(**options))
        finally:
            self.forget_stderr()
            if before is not None:
                before.close()
        # The host has opened its control socket again if it has asked the old process to exit.
        self.take_over_sockets()
        await self.started()
        self._mark("starting")

    async def shutdown(self, *, now: bool) -> None:
        """End the process and make the host forget the kernel."""
        # First: if the shutdown fails, the host's users can find the kernel unused.
        self._uses.end(self._kernel_id, self._user)
        if self._hidden:  # the manager ends what it has
            self._put_back()
        try:
            await self._shutdown(now)
        finally:
            self._aside.discard(self._kernel_id)
            if self._stderr is not None:
                self._stderr.close()

    async def _shutdown(self, now: bool) -> None:
        await self._until_host_is_done()
        if not self.present:
            return
        try:
            await ensure_async(self._manager.shutdown_kernel(self._kernel_id, now=now))
        except Exception:  # of any manager: a client did the same at this moment, and it does one thing at a time
            await self._until_host_is_done()
            if self.present:
                await ensure_async(self._manager.shutdown_kernel(self._kernel_id, now=True))

    async def _until_host_is_done(self) -> None:
        """Wait, for a bounded time, for a start, restart or shutdown that another client began."""
        ready = getattr(self._km, "ready", None)
        if ready is not None:
            pending = asyncio.wrap_future(ready) if isinstance(ready, concurrent.futures.Future) else ready
            # Unlike `wait_for`, it does not cancel what it waits for, which is the host's.
            await asyncio.wait([pending], timeout=_SETTLE_LIMIT_SECONDS)
        if self.being_shut_down:
            await self.settled()

    def note_activity(self, state: str = "") -> None:
        """Report to the host that the kernel is in use, so that it is not culled, and whether it is busy or idle."""
        if state in ("busy", "idle"):
            self._mark(state)
        if self._kernel_id in self._aside or time.monotonic() < self._touch_again_at:
            return
        self._touch_again_at = time.monotonic() + _TOUCH_AGAIN_SECONDS
        now = datetime.now(timezone.utc)
        # Jupyter Server's managers have these, for its culler and its shutdown of an idle server. Others need not.
        for thing, name in ((self._km, "last_activity"), (self._manager, "last_kernel_activity")):
            if hasattr(thing, name):
                setattr(thing, name, now)

    def take_connection(self) -> Mapping[str, Any]:
        """Return addresses and key, as in a connection file; from now on the host reads nothing from the kernel."""
        self.take_over_sockets()
        return self._km.get_connection_info()

    def take_over_sockets(self) -> None:
        """Make the host read nothing from the kernel: from now on it is told what it needs to know.

        Jupyter Server follows every kernel's output to know when it is busy: it copies and checks each message on
        the event loop, which a message of 100 MB holds up for as long as that takes. And its libraries read messages
        of any size, on the control channel, too.
        """
        self._km._close_control_socket()  # opened again where the host has something to send
        # Not the manager's `stop_watching_activity`: it also gives up a restart that the host is waiting for.
        stream = getattr(self._km, "_activity_stream", None)
        if stream is not None and not stream.closed():
            stream.close(linger=0)  # its subscription, perhaps unsent yet, is worth nothing
            self._km._activity_stream = None  # type: ignore[attr-defined]

    async def settled(self) -> None:
        """Wait until a shutdown or restart that another client began is over."""
        give_up_at = asyncio.get_running_loop().time() + _SETTLE_LIMIT_SECONDS
        while self.present and asyncio.get_running_loop().time() < give_up_at:
            if not self.being_shut_down and await self.alive():
                return
            await asyncio.sleep(_SETTLE_POLL_SECONDS)

    def _mark(self, state: str) -> None:
        """Tell the host's kernel list what its own watch of iopub cannot see."""
        if hasattr(self._km, "execution_state"):
            self._km.execution_state = state
