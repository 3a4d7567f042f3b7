"""Kernels to run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...models import KernelSpecInfo
from .file_ports import KernelFiles


@dataclass(frozen=True, slots=True)
class KernelExit:
    """How a kernel process ended, as far as the system tells.

    Parameters
    ----------
    exit_code : int or None
        Its exit code, if it exited.
    signal : str or None
        The signal's name, such as ``"SIGKILL"``, if one ended it.
    unreachable_seconds : float or None
        How long its machine could not be reached, if it counts as ended for that reason alone.
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


class Kernel(Protocol):
    """One kernel, from its start to its shutdown; restarts keep the id.

    Attributes
    ----------
    ours : bool
        Whether it was started for the session. If not, it is somebody else's, who goes on using it: it is neither
        killed nor shut down, restarting it is to wait until the host has done so, and `turn` is held by the session
        that sends it code.
    """

    @property
    def ours(self) -> bool:
        """Whether it was started for the session."""

    @property
    def turn(self) -> asyncio.Lock:
        """Whose turn it is among the sessions that use the kernel."""

    @property
    def kernel_id(self) -> str:
        """The host's id of the kernel."""

    @property
    def present(self) -> bool:
        """Whether the host still has the kernel, alive or dead."""

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine."""

    @property
    def limits_itself(self) -> bool:
        """Whether what starts it has set the limits that its environment tells."""

    @property
    def is_confined(self) -> bool:
        """True for a kernel that was started with some isolation, or by a provisioner that is not known here."""

    @property
    def waits_for_readers(self) -> bool:
        """Whether what starts it has seen to it that it loses no output: see ``protocol/kernel_preparation.py``."""

    def last_words(self) -> str:
        """Return the end of what its process has printed, once that has ended; empty if that is not known. Blocks."""

    @property
    def shared_directory(self) -> tuple[Path, str] | None:
        """A directory that an isolated kernel and the server can write, and how the kernel calls it.

        None for a kernel that sees what the server sees.
        """

    @property
    def files(self) -> KernelFiles | None:
        """Its files, if they are not on this machine and can be reached all the same."""

    @property
    def being_shut_down(self) -> bool:
        """Whether the host is ending its process on purpose."""

    async def alive(self) -> bool:
        """Return whether the kernel's process runs."""

    def connection_info(self) -> Mapping[str, Any]:
        """Return the addresses and the key, as in a connection file."""

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        """Call `on_exit` once when the present process ends; the returned function ends the watch."""

    @property
    def interrupts_by_message(self) -> bool:
        """Whether it is interrupted by a message on the control channel, and not by `interrupt`."""

    async def interrupt(self) -> None:
        """Send the running code the signal to stop."""

    async def kill(self) -> None:
        """End the process at once and wait until it has ended; the host keeps the kernel."""

    async def restart(self, *, now: bool) -> None:
        """Start a fresh process under the same id; with `now`, without asking the old one to exit."""

    async def shutdown(self, *, now: bool) -> None:
        """End the process and make the host forget the kernel."""

    def touch(self) -> None:
        """Tell the host that the kernel is in use, so that it is not culled."""

    def take_over_sockets(self) -> None:
        """Make the host read nothing from the kernel: from now on it is told what it needs to know."""

    def note_state(self, state: str) -> None:
        """Tell the host that the kernel has become busy or idle, whoever's code it was."""

    async def settled(self) -> None:
        """Wait until a shutdown or restart that somebody else began is over."""


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
        """Return what tells one content of a kernelspec from another, as it was when it was last found."""

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
    ) -> Kernel:
        """Start a kernel with exactly the environment `env`, in the directory `cwd` or, without one, in the host's.

        Parameters
        ----------
        isolate : str, optional
            The isolation to start it with, whatever its kernelspec says.
        aside : str, optional
            The kernel's id, if nobody but the one who starts it is to see or use it, nor is the host to be busy with
            it, until `enlist`. It takes up a place among the host's kernels only as long as nobody else needs that.

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
        """Return a running kernel, to be used together with whoever uses it already.

        Raises
        ------
        KernelNotFound
        Conflict
            If its process does not run at the moment.
        """
