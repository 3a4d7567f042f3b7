"""Interfaces of kernels: one kernel, the host that starts kernels, and the observer of a session's kernel."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...models import KernelSpecInfo
from ...protocol.kernel_messages import KernelMessage
from .file_ports import KernelFiles


@dataclass(frozen=True, slots=True)
class KernelExit:
    """Exit of a kernel process, as far as the system reports it.

    Parameters
    ----------
    exit_code : int or None
        Its exit code, if it exited.
    signal : str or None
        The signal's name, such as ``"SIGKILL"``, if one ended it.
    unreachable_seconds : float or None
        Time for which its machine could not be reached, if it counts as ended for that reason alone.
    """

    exit_code: int | None = None
    signal: str | None = None
    unreachable_seconds: float | None = None

    def __str__(self) -> str:
        if self.unreachable_seconds is not None:
            return f"could not be reached for {self.unreachable_seconds:g} s, and was given up"
        if self.signal is not None:
            return f"was ended by {self.signal}"
        return "ended" if self.exit_code is None else f"exited with code {self.exit_code}"


class ProcessOutput(Protocol):
    """Pipe for what a kernel's process prints beside its messages.

    Attributes
    ----------
    for_kernel : int
        Its end for the process; open until `close_write_end`.
    """

    for_kernel: int

    def close_write_end(self) -> None:
        """Close that end here: the process has it."""

    def close(self) -> None:
        """Read no more, where that does not end with the process."""


@dataclass(frozen=True, slots=True)
class CheckpointSupport:
    """Access to the checkpoints of a kernel.

    Parameters
    ----------
    path : Path
        Unix socket on which it can wait for the process of a checkpoint.
    address : str
        Path of that socket inside the kernel.
    placeholder_signal : int
        Signal at which the kernel's process becomes a sleeping one, so that its sandbox stays; 0 for one that can end.
    new_output : callable, optional
        Makes the output of a process that is forked in the kernel's sandbox; None for a kernel without one.
    """

    path: Path
    address: str
    placeholder_signal: int = 0
    new_output: Callable[[], ProcessOutput] | None = None


@dataclass(frozen=True, slots=True)
class KernelTraits:
    """Fixed properties of a kernel.

    Parameters
    ----------
    turn : asyncio.Lock or None
        For a kernel that its user goes on using: held by the session that sends it code. Such a kernel is neither
        killed nor shut down, and restarting it is to wait until its host has done so. None for a kernel that was
        started for the session.
    limits_itself : bool
        Whether its provisioner has set the limits that its environment names.
    is_confined : bool
        True for a kernel that was started with some isolation, or by an unknown provisioner.
    waits_for_readers : bool
        Whether its provisioner ensures that it loses no output: see ``protocol/kernel_preparation.py``.
    interrupts_by_message : bool
        Whether it is interrupted by a message on the control channel, and not by `Kernel.interrupt`.
    shared_directory : (Path, str) or None
        Directory that an isolated kernel and the server can write, and its name inside the kernel. None for a kernel
        that sees the server's files.
    files : KernelFiles or None
        Its files, if they are not on this machine and can be reached nevertheless.
    network_listener : socket.socket or None
        Listens in the sandbox of a kernel that was started for network rules; closed when the kernel has ended.
    checkpoints : CheckpointSupport or None
        Access to its checkpoints; None for a kernel that can have none.
    has_state : bool
        Whether its process was made from a checkpoint, with a state.
    """

    turn: asyncio.Lock | None = None
    limits_itself: bool = False
    is_confined: bool = False
    waits_for_readers: bool = False
    interrupts_by_message: bool = False
    shared_directory: tuple[Path, str] | None = None
    files: KernelFiles | None = None
    network_listener: socket.socket | None = None
    checkpoints: CheckpointSupport | None = None
    has_state: bool = False

    @property
    def is_shared(self) -> bool:
        """True if its user goes on using it."""
        return self.turn is not None


class KernelLaunch(Protocol):
    """Launch of a kernel from a checkpoint."""

    async def begin(self) -> None:
        """Make the process; what fails here leaves the present kernel as it is.

        Raises
        ------
        CheckpointFailed, StorageFull
        """

    async def release(self) -> None:
        """End the process, if it was not made a kernel; done after any end."""


class Kernel(Protocol):
    """One kernel, from its start to its shutdown; restarts keep the id."""

    @property
    def kernel_id(self) -> str:
        """The host's id of the kernel."""

    @property
    def traits(self) -> KernelTraits:
        """Its fixed properties."""

    @property
    def present(self) -> bool:
        """True if the host still has the kernel, alive or dead."""

    @property
    def being_shut_down(self) -> bool:
        """True if the host is ending its process on purpose."""

    @property
    def removal_reason(self) -> str:
        """Probable reason for which another client has shut it down, in one sentence."""

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine."""

    async def alive(self) -> bool:
        """Return whether the kernel's process runs."""

    def last_words(self) -> str:
        """Return the end of the output of a process that has ended; empty if that is unknown. Blocks."""

    def take_connection(self) -> Mapping[str, Any]:
        """Return addresses and key, as in a connection file; from now on the host reads nothing from the kernel."""

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        """Call `on_exit` once when the present process ends; the returned function ends the watch."""

    async def interrupt(self) -> None:
        """Send the running code the signal to stop."""

    async def kill(self) -> None:
        """End the process at once and wait until it has ended; the host keeps the kernel."""

    async def restart(self, *, now: bool, launch: KernelLaunch | None = None) -> None:
        """Start a fresh process under the same id.

        Parameters
        ----------
        now : bool
            Do not ask the old process to exit.
        launch : KernelLaunch, optional
            Gives the process, which then has a state already.
        """

    async def shutdown(self, *, now: bool) -> None:
        """End the process and make the host forget the kernel."""

    def note_activity(self, state: str = "") -> None:
        """Report to the host that the kernel is in use, so that it is not culled, and whether it is busy or idle."""

    async def list_as(self, session_id: str, name: str) -> None:
        """Show the host's other clients a server session of this name on the kernel, until `shutdown`."""

    async def settled(self) -> None:
        """Wait until a shutdown or restart that another client began is over."""


class KernelReceiver(Protocol):
    """Receiver of what a session's kernel sends, until it exits."""

    def on_message(self, message: KernelMessage) -> None:
        """Handle a message of the kernel."""

    def on_too_large(self, reason: str) -> None:
        """Note that a message was left out because of its size."""

    def on_exit(self, exit_: KernelExit) -> None:
        """Note that the kernel's process has ended."""


class KernelOwner(Protocol):
    """Owner of a session's kernel: keeps a record of it."""

    async def on_connected(self, kernel_id: str, starts: int) -> None:
        """Note that a process has answered, and how many processes there have been."""

    async def on_removed(self, reason: str) -> None:
        """Note that another client has shut the kernel down."""


# Has the methods of `KernelReceiver` and `KernelOwner`, so that a `SessionKernel` always has both.
class NoObserver:
    """Null object for a kernel whose session is yet to be made."""

    def on_message(self, message: KernelMessage) -> None:
        """Drop the message."""

    def on_too_large(self, reason: str) -> None:
        """Do nothing."""

    def on_exit(self, exit_: KernelExit) -> None:
        """Do nothing."""

    async def on_connected(self, kernel_id: str, starts: int) -> None:
        """Do nothing."""

    async def on_removed(self, reason: str) -> None:
        """Do nothing."""


class RoomMaker(Protocol):
    """Pool of kernels that are ended where their place is needed."""

    async def make_room(self) -> None:
        """End one kernel, if there is one."""


class KernelHost(Protocol):
    """A multi-kernel manager: the server's, the gateway's or our own."""

    @property
    def default_kernel_name(self) -> str:
        """The kernelspec used when a caller names none."""

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        """Return the kernelspecs a caller may name."""

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        """Return one kernelspec.

        Raises
        ------
        KernelSpecNotFound
        """

    def version_of(self, kernel_name: str) -> str:
        """Return a digest of a kernelspec's content, as it was when it was last found."""

    def program_of(self, kernel_name: str) -> str:
        """Return the program in a kernelspec's command, as it was when it was last found; empty for an unknown one."""

    def runs_elsewhere(self, kernel_name: str) -> bool:
        """Return whether a kernelspec's kernels run on other machines, as it was when it was last found."""

    async def start(
        self,
        kernel_name: str,
        env: Mapping[str, str],
        cwd: str | None,
        isolate: str | None = None,
        *,
        aside: str | None = None,
        launch: KernelLaunch | None = None,
    ) -> Kernel:
        """Start a kernel with exactly the environment `env`, in the directory `cwd` or, without one, in the host's.

        Parameters
        ----------
        isolate : str, optional
            The isolation to start it with, whatever its kernelspec says.
        aside : str, optional
            The kernel's id, if it is for the warm pool: hidden from other clients until `enlist`. It has a place among
            the host's kernels only until another start needs that.
        launch : KernelLaunch, optional
            Gives its process, which has begun and has a state already.

        Raises
        ------
        TooManyKernels, KernelStartFailed, IsolationRequired
        """

    def enlist(self, kernel: Kernel) -> None:
        """Make a kernel that was started aside one like all others.

        Raises
        ------
        TooManyKernels
        """

    def use_pool(self, pool: RoomMaker) -> bool:
        """Have `pool` make room before a start is refused; return whether kernels can be started aside for it."""

    def running(self, kernel_id: str) -> KernelSpecInfo:
        """Return the kernelspec of a kernel that can be attached to.

        Raises
        ------
        KernelNotFound
            If the host has no such kernel, or it was started for a session.
        """

    async def attach(self, kernel_id: str) -> Kernel:
        """Return a running kernel, to be used together with its present user.

        Raises
        ------
        KernelNotFound
        Conflict
            If its process does not run at the moment.
        """
