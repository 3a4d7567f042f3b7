"""Notice at once when a kernel process ends, and say how.

On Linux a pidfd becomes readable the moment the process is gone (0.7 ms in the median; jupyter_client's restarter
looks every 3 s). A provisioner of a kernel that is no process here, or another one's child, may say it (``exited``).
A kernel with neither runs elsewhere: its provisioner is asked every 3 s, and `remote_liveness` decides.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
from collections.abc import Callable

from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from ..ports import KernelExit
from .remote_liveness import ANSWER_SECONDS, Answer, Presence, RemoteLiveness, probe_port

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
    exited = getattr(provisioner, "exited", None)
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
    watched = True

    def unwatch() -> None:
        nonlocal watched
        watched = False

    def ended() -> None:
        if watched:
            unwatch()
            on_exit(describe_exit(exited.result()))

    exited.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(ended))
    return unwatch


def _watch_pidfd(process: subprocess.Popen[bytes], on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
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
    except Exception as error:  # another package's; whatever it is, the end of the kernel was not learned
        provisioner.log.debug("kernel %s: its provisioner has no answer: %r", provisioner.kernel_id, error)
        unsure = Presence.UNREACHABLE
    info = provisioner.connection_info
    if not returncode and info.get("transport", "tcp") == "tcp" and "shell_port" in info:
        presence = await probe_port(info)
        greeted = presence is Presence.ALIVE
        return Answer(presence if returncode == 0 or has_greeted else Presence.ALIVE, greeted=greeted)
    if returncode is None:
        return Answer(Presence.ALIVE)
    return Answer(unsure, None if unsure is Presence.UNREACHABLE else describe_exit(returncode))
