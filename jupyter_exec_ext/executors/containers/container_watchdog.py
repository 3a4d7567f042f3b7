"""Ends a container when the process that started it is gone, however that ended.

`start` runs this module as a process of its own, in a session of its own, so that what ends the parent does not end it.
It reads from a pipe: a line tells it that there is nothing more to do; the end of the pipe, or another parent than it
had, that the parent is gone. A forked relative of the parent may still hold the pipe open.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from .container_engine import connect, is_gone

_STOP_SECONDS = 5
_GONE_SECONDS = 15.0
_LOOK_SECONDS = 1.0
# Without the current directory among the modules: it is the user's.
_LAUNCH = """\
import sys
sys.path[:] = [path for path in sys.path if path]
from jupyter_exec_ext.executors.containers.container_watchdog import main
main()
"""


def end(client: Any, container_id: str, *, remove: bool) -> None:
    """Stop a container and, if it is not to be kept, wait until it is removed; it may be gone already.

    Raises
    ------
    docker.errors.APIError
        If the engine refuses.
    TimeoutError
        If it does not remove the container.
    """
    from docker.errors import APIError, NotFound

    refusal: APIError | None = None
    try:
        container = client.containers.get(container_id)
        container.stop(timeout=_STOP_SECONDS)
        if remove:
            container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as error:  # as when the engine is at removing it already
        refusal = error
    deadline = time.monotonic() + _GONE_SECONDS
    while remove and not is_gone(client, container_id):
        if time.monotonic() > deadline:
            raise refusal or TimeoutError("the engine does not remove the container")
        time.sleep(0.05)
    if refusal is not None and not remove:
        raise refusal


def start(container_id: str, *, remove: bool, network: str | None) -> subprocess.Popen[bytes]:
    """Start a watchdog for a container, and the network that is its own; `dismiss` ends it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    order = {"parent": os.getpid(), "container": container_id, "remove": remove, "network": network}
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
    except BaseException:  # it has ended already, and will watch over nothing
        process.kill()
        process.wait()
        raise
    return process


def dismiss(watchdog: subprocess.Popen[bytes]) -> None:
    """Tell a watchdog that there is nothing more to do."""
    assert watchdog.stdin is not None
    with contextlib.suppress(OSError):
        watchdog.stdin.write(b"done\n")
        watchdog.stdin.close()
    watchdog.wait()


def _parent_is_gone(parent: int) -> bool:
    """Wait for the order to leave, or for the parent's end."""
    if os.name != "posix":
        return not os.read(0, 1)
    while os.getppid() == parent:
        if select.select([0], [], [], _LOOK_SECONDS)[0]:
            return not os.read(0, 1)
    return True


def main() -> None:
    """Read the order and wait."""
    order = json.loads(_line())
    if not _parent_is_gone(order["parent"]):
        return
    client = connect()
    try:
        end(client, order["container"], remove=order["remove"])
        if order["network"] is not None:
            client.networks.get(order["network"]).remove()
    finally:
        client.close()


def _line() -> bytes:
    """Read one line and nothing beyond it, so that what follows is still to be seen on the descriptor."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("the parent ended before it said what to watch")
        line += byte
    return line


if __name__ == "__main__":
    main()
