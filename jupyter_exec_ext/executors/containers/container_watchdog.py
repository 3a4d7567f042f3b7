"""Watchdog process that stops a container when the process that started it has ended, also by a crash.

`start_watchdog` runs this module in a process and session of its own, so that a signal to the parent's group spares it.
The watchdog reads from a pipe: a line dismisses it. The end of the pipe, or a change of its parent process, means that
the parent has ended; a forked child of the parent may still hold the pipe open.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any

from ..managed_server import command_of_module
from .container_engine import connect_to_engine, docker_library, is_gone

# The engine kills a container that has not stopped by then.
_STOP_SECONDS = 5
# Removing takes the engine a moment, and longer on a busy machine.
_REMOVE_SECONDS = 15.0
# The pipe usually reports the parent's end at once; polling is for a forked child that holds the pipe open.
_PARENT_POLL_SECONDS = 1.0


def stop_container(client: Any, container_id: str, *, remove: bool) -> None:
    """Stop a container and, with `remove`, wait until it is removed; one that is gone is no error.

    Raises
    ------
    docker.errors.APIError
        If the engine refuses.
    TimeoutError
        If the engine does not remove the container.
    """
    errors = docker_library().errors
    failure: Exception = TimeoutError("the engine does not remove the container")
    try:
        container = client.containers.get(container_id)
        container.stop(timeout=_STOP_SECONDS)
        if remove:
            container.remove(force=True, v=True)
    except errors.NotFound:
        return
    except errors.APIError as error:
        if not remove:
            raise
        failure = error  # no failure yet: an engine that is already removing the container refuses, too
    if not remove:
        return
    deadline = time.monotonic() + _REMOVE_SECONDS
    while not is_gone(client, container_id):
        if time.monotonic() > deadline:
            raise failure
        time.sleep(0.05)


def start_watchdog(container_id: str, *, remove: bool, network: str | None) -> subprocess.Popen[bytes]:
    """Start a watchdog for a container and, if it has one to itself, its network; `dismiss_watchdog` ends it."""
    process = subprocess.Popen(
        command_of_module(__name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    order = {"parent": os.getpid(), "container": container_id, "remove": remove, "network": network}
    assert process.stdin is not None
    with contextlib.ExitStack() as undo:  # without its order it would watch nothing
        undo.callback(process.wait)
        undo.callback(process.kill)
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        undo.pop_all()
    return process


def dismiss_watchdog(watchdog: subprocess.Popen[bytes]) -> None:
    """End a watchdog; the container is left as it is."""
    assert watchdog.stdin is not None
    with contextlib.suppress(OSError):
        watchdog.stdin.write(b"done\n")
        watchdog.stdin.close()
    watchdog.wait()


def _wait_for_parent(parent: int) -> bool:
    """Wait for the line that dismisses the watchdog or for the parent's end; return whether the parent has ended."""
    if os.name != "posix":
        return not os.read(0, 1)
    # Checked before the first wait: the parent may have ended before this process began.
    while os.getppid() == parent:
        if select.select([0], [], [], _PARENT_POLL_SECONDS)[0]:
            return not os.read(0, 1)
    return True


def _read_order() -> dict[str, Any]:
    """Read one line and no byte more: `select` must see the rest on the descriptor, not a buffer."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("the parent ended before it named a container")
        line += byte
    order: dict[str, Any] = json.loads(line)
    return order


def main() -> None:
    """Read the order, wait for the parent's end, and stop the container."""
    order = _read_order()
    if not _wait_for_parent(order["parent"]):
        return
    with contextlib.closing(connect_to_engine()) as client:
        try:
            stop_container(client, order["container"], remove=order["remove"])
        finally:
            if order["network"] is not None:
                client.networks.get(order["network"]).remove()
