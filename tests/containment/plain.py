"""Processes of an unprivileged user, and kernels without any protection: for the control run.

Where the tests run as root, the user is another one. If that user cannot reach the interpreter (it is below a directory
that only root may enter), the process gets mounts of its own, in which that directory has nothing but the interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

if TYPE_CHECKING:
    from typing_extensions import Self

    from tests.containment.world import World

NOBODY = 65534
READY_SECONDS = 60.0

# Runs as root, with the file's user, what must be reachable, and the command.
_BECOME = r"""
import ctypes, json, os, sys
user, own_mounts, hidden, needed, *command = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

def mount(source, target, kind, flags):
    if libc.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)

if own_mounts or hidden:
    if libc.unshare(0x20000):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    mount("none", "/", None, 0x4000 | 0x40000)  # private, and all below
kept = [(path, os.open(path, os.O_PATH)) for path in needed]
for path in hidden:
    mount("tmpfs", path, "tmpfs", 0)
    os.chmod(path, 0o755)
for path, descriptor in kept:
    os.makedirs(path, 0o755, exist_ok=True)
    mount(f"/proc/self/fd/{descriptor}", path, None, 0x1000 | 0x4000)
    os.close(descriptor)
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
os.execv(command[0], command)
"""


def as_user(command: list[str], user: int, *, own_mounts: bool = False, needs: Iterable[str] = ()) -> list[str]:
    """Return how to run a command as a user, from root; for another than root, no preparation is needed.

    It reaches the interpreter and what it `needs` beside it, wherever that is.
    """
    if os.geteuid() != 0:
        return command
    needed = [path for path in (*_needed(), *needs) if _closed_above(path)] if user else []
    hidden = sorted({_closed_above(path) for path in needed})
    if own_mounts or hidden:
        # Imported here: servers under test load this module, and are to be without pytest.
        from tests.support.outside_parts import require_part

        require_part("mounts")
    told = json.dumps([user, own_mounts, hidden, needed, *command])
    return [sys.executable, "-c", _BECOME, told]


def _needed() -> list[str]:
    """Return the directories that the interpreter consists of, and these tests."""
    real = Path(sys.executable).resolve().parent.parent
    tests = Path(__file__).parent.parent.parent
    return sorted({str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, real, tests)})


def _closed_above(path: str) -> str:
    """Return the uppermost directory on the way to this one that others may not enter."""
    for above in reversed(Path(path).parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            return str(above)
    return ""


def wait_for_ready(client: BlockingKernelClient) -> None:
    """Wait for an answer; on a busy machine, a kernel that is slow to begin is taken for dead by its heartbeat."""
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            return client.wait_for_ready(timeout=READY_SECONDS)
        except RuntimeError:
            if time.monotonic() > until:
                raise


class PlainKernel:
    """A kernel as a server starts one that knows nothing of sandboxes, with the server's environment.

    Parameters
    ----------
    world : World
        Where it runs: its directory and environment.
    own_mounts : bool
        Whether it runs as root, in a mount namespace of its own; else as the world's user.
    """

    def __init__(self, world: World, *, own_mounts: bool = False) -> None:
        self._world = world
        self._own_mounts = own_mounts
        self._process: subprocess.Popen[bytes] | None = None
        self.client: BlockingKernelClient | None = None
        self._connection = str(world.work.parent / "kernel.json")
        self._starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> BlockingKernelClient:
        """Start it anew, and return a client that it has answered."""
        self.stop()
        self._starts += 1  # so that no client takes what answers at the old sockets for the new kernel
        write_connection_file(self._connection, transport="ipc", ip=f"{self._world.work.parent}/k{self._starts}")
        user = 0 if self._own_mounts else self._world.user
        if os.geteuid() == 0:
            os.chown(self._connection, user, -1)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", self._connection]
        self._process = subprocess.Popen(
            as_user(command, user, own_mounts=self._own_mounts),
            cwd=self._world.work,
            env=self._world.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=self._world.descriptors,  # a careless launcher, so that the probes for that are tried, too
        )
        self.client = BlockingKernelClient(connection_file=self._connection)
        self.client.load_connection_file()
        self.client.start_channels()
        wait_for_ready(self.client)
        return self.client

    def stop(self) -> None:
        """End the kernel's process, and no other, as a server without sandboxes does."""
        if self.client is not None:
            self.client.stop_channels()
            self.client = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
