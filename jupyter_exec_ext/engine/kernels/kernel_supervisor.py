"""Supervision of kernel processes: reports the end of a process at once, and whether a remote kernel is alive."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from ..ports import KernelExit

#: Timeout of one question, to the provisioner or to the kernel's port.
ANSWER_SECONDS = 3.0
# A proxy or firewall on the way refuses connections during a short cut, as a machine does whose kernel has ended.
_GONE_SECONDS = 5.0
#: How long a kernel may be unreachable before it counts as lost.
UNREACHABLE_LIMIT_SECONDS = 120.0
# The first byte that any version of libzmq sends.
_GREETING = b"\xff"


class Presence(Enum):
    """The answer to the question whether a kernel is there."""

    ALIVE = "alive"
    GONE = "gone"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one question, to the provisioner or to the kernel's port.

    Parameters
    ----------
    presence : Presence
    exit_ : KernelExit or None
        How the kernel ended, where that is certain.
    greeted : bool
        Whether the kernel's port has shown that it lives.
    """

    presence: Presence
    exit_: KernelExit | None = None
    greeted: bool = False


class RemoteLiveness:
    """Decides from answers when a kernel counts as ended. Pure: times are given.

    Attributes
    ----------
    presence : Presence
        The last answer.
    """

    def __init__(self, now: float) -> None:
        self.presence = Presence.ALIVE
        self._since = self._lost_at = now

    def note(self, answer: Answer, now: float) -> KernelExit | None:
        """Take in an answer; return how the kernel ended, None while it may live."""
        # The time counts from the first bad answer after a good one, even if gone and unreachable alternate.
        if Presence.ALIVE in (answer.presence, self.presence):
            self._lost_at = now
        if answer.presence is not self.presence:
            self.presence, self._since = answer.presence, now
        if answer.exit_ is not None:
            return answer.exit_
        if self.presence is Presence.GONE and now - self._since >= _GONE_SECONDS:
            return KernelExit()
        if self.presence is not Presence.ALIVE and now - self._lost_at >= UNREACHABLE_LIMIT_SECONDS:
            return KernelExit(unreachable_seconds=UNREACHABLE_LIMIT_SECONDS)
        return None


async def probe_port(info: Mapping[str, Any]) -> Presence:
    """Connect to a kernel's shell port and wait for libzmq's greeting.

    Parameters
    ----------
    info : mapping
        The kernel's connection info, with ``transport`` ``"tcp"``.
    """
    try:
        connecting = asyncio.open_connection(str(info["ip"]), int(info["shell_port"]))
        reader, writer = await asyncio.wait_for(connecting, ANSWER_SECONDS)
    except ConnectionRefusedError:
        return Presence.GONE
    except (OSError, asyncio.TimeoutError):
        return Presence.UNREACHABLE
    try:
        greeting = await asyncio.wait_for(reader.read(1), ANSWER_SECONDS)
    except (ConnectionResetError, BrokenPipeError):
        return Presence.GONE
    except (OSError, asyncio.TimeoutError):
        return Presence.UNREACHABLE
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    # A proxy, or another program on the port, accepts connections as well. libzmq alone greets so.
    return Presence.ALIVE if greeting == _GREETING else Presence.GONE


_LOCAL_POLL_SECONDS = 0.25
_REMOTE_POLL_SECONDS = 3.0


def describe_exit(returncode: int | None) -> KernelExit:
    """Return a `Popen` return code in words; negative codes are signals."""
    if returncode is None:
        return KernelExit()
    if returncode >= 0:
        return KernelExit(exit_code=returncode)
    try:
        return KernelExit(signal=signal.Signals(-returncode).name)
    except ValueError:
        return KernelExit(signal=f"signal {-returncode}")


def watch_exit(provisioner: KernelProvisionerBase, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
    """Call `on_exit` once when the provisioner's present process ends.

    Returns
    -------
    callable
        Ends the watch; harmless when it is over.
    """
    exited = getattr(provisioner, "exited", None) or getattr(getattr(provisioner, "process", None), "exited", None)
    # First: a forked kernel is a `Popen`, too, but only its parent process learns how it ended.
    if isinstance(exited, concurrent.futures.Future):
        return _watch_future(exited, on_exit)
    process = getattr(provisioner, "process", None)
    if isinstance(process, subprocess.Popen) and hasattr(os, "pidfd_open"):
        return _watch_pidfd(process, on_exit)
    poll = _poll if isinstance(process, subprocess.Popen) else _poll_elsewhere
    task = asyncio.get_running_loop().create_task(poll(provisioner, on_exit))

    def unwatch() -> None:
        task.cancel()

    return unwatch


def _watch_future(
    exited: concurrent.futures.Future[int | None], on_exit: Callable[[KernelExit], None]
) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    # A callback of such a future cannot be removed, and may be on its way to the loop when the watch ends.
    watched = True

    def unwatch() -> None:
        nonlocal watched
        watched = False

    def ended() -> None:
        if watched:
            unwatch()
            on_exit(describe_exit(exited.result()))

    # It is called in the thread that ends the future, which may outlive this loop.
    exited.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(ended))
    return unwatch


def _watch_pidfd(process: subprocess.Popen[bytes], on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    # Once its exit was read, its number may belong to another process. Until then the system keeps it.
    if process.poll() is not None:
        handle = loop.call_soon(on_exit, describe_exit(process.returncode))
        return handle.cancel
    pidfd = os.pidfd_open(process.pid)
    open_ = True

    def unwatch() -> None:
        nonlocal open_
        if open_:
            open_ = False
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def ended() -> None:
        unwatch()
        on_exit(describe_exit(process.poll()))

    loop.add_reader(pidfd, ended)
    return unwatch


async def _poll(provisioner: KernelProvisionerBase, on_exit: Callable[[KernelExit], None]) -> None:
    while True:
        returncode = await provisioner.poll()
        # Without a process another caller has read the exit, and the code is lost.
        if returncode is not None or not provisioner.has_process:
            on_exit(describe_exit(returncode))
            return
        await asyncio.sleep(_LOCAL_POLL_SECONDS)


async def _poll_elsewhere(provisioner: KernelProvisionerBase, on_exit: Callable[[KernelExit], None]) -> None:
    loop = asyncio.get_running_loop()
    liveness, has_greeted = RemoteLiveness(loop.time()), False
    while True:
        before, answer = liveness.presence, await _ask(provisioner, has_greeted)
        has_greeted = has_greeted or answer.greeted
        exit_ = liveness.note(answer, loop.time())
        if exit_ is not None:
            on_exit(exit_)
            return
        if answer.presence is not before:
            provisioner.log.warning("kernel %s is %s", provisioner.kernel_id, answer.presence.value)
        await asyncio.sleep(_REMOTE_POLL_SECONDS)


async def _ask(provisioner: KernelProvisionerBase, has_greeted: bool) -> Answer:
    """Ask a provisioner whether its kernel lives, and check the answer at the kernel's port.

    The listener of gateway_provisioners outlives its kernel and goes on answering. A port that has never greeted may
    be one that the kernel has yet to open.
    """
    if not provisioner.has_process:
        return Answer(Presence.GONE, KernelExit())
    returncode: int | None = 0
    unsure = Presence.GONE
    try:
        returncode = await asyncio.wait_for(provisioner.poll(), ANSWER_SECONDS)
    except Exception as error:  # of any kind, since it is another package's; it is no sign of the kernel's end
        provisioner.log.debug("kernel %s: its provisioner has no answer: %r", provisioner.kernel_id, error)
        unsure = Presence.UNREACHABLE
    info = provisioner.connection_info
    # Code 0 proves nothing: gateway_provisioners answers it also where the network is cut. Other codes are an end.
    if not returncode and info.get("transport", "tcp") == "tcp" and "shell_port" in info:
        presence = await probe_port(info)
        greeted = presence is Presence.ALIVE
        return Answer(presence if returncode == 0 or has_greeted else Presence.ALIVE, greeted=greeted)
    if returncode is None:
        return Answer(Presence.ALIVE)
    return Answer(unsure, None if unsure is Presence.UNREACHABLE else describe_exit(returncode))


def end_of(provisioner: KernelProvisionerBase) -> Callable[[], Awaitable[bool]]:
    """Return what tells whether the provisioner's present process has ended."""
    process = getattr(provisioner, "process", None)

    async def has_ended() -> bool:
        if isinstance(process, subprocess.Popen):
            return process.poll() is not None
        return not provisioner.has_process or await provisioner.poll() is not None

    return has_ended
