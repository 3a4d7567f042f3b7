"""Server's side of a checkpoint's process: forks kernels from it, and waits for its first connection.

What it says is as hostile as the code of the kernel. So its process and those that it forks are known by what the
system says of the sender, and not by their own words.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ..errors import CheckpointFailed
from .forked_process import ForkedProcess
from .forking_process import ForkingProcess, ParentGoneError

_CREDENTIALS = struct.Struct("iII")  # process, user and group
_INT = struct.Struct("i")
# Of Linux 6.5, as Python does not name them yet: descriptors of processes with a socket and with a message.
_SO_PASSPIDFD, _SO_PEERPIDFD, _SCM_PIDFD = 76, 77, 4
_MAX_LINE_BYTES = 4096
_GREETING_SECONDS = 2.0
_END_SECONDS = 2.0


class FrozenKernel(ForkingProcess):
    """Process of a checkpoint.

    Parameters
    ----------
    connection : socket.socket
        Leads to the process, which ends when this one is closed.
    kernel_pid : int or None
        The kernel's process, in whose list of processes this one is; None if it is not known.

    Raises
    ------
    OSError
        If it has ended, or is a process of another list.
    """

    def __init__(self, connection: socket.socket, kernel_pid: int | None = None) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self._pid = int(_CREDENTIALS.unpack(credentials)[0])
        self._pidfd = _peer_descriptor(connection, self._pid)
        # Not earlier: another thread may look at it, and the number may be another process's by then.
        weakref.finalize(self, os.close, self._pidfd)
        self._pid_namespace = _read_pid_namespace(self._pid)
        if kernel_pid is not None and self._pid_namespace != _read_pid_namespace(kernel_pid):
            raise ProcessLookupError("it is not among the kernel's processes")
        super().__init__(connection, connection.makefile("rb"))

    @property
    def pid(self) -> int:
        """Its process."""
        return self._pid

    def fork(self, descriptors: Sequence[int]) -> ForkedProcess:
        """Fork a kernel, which then waits to be told what it is to be.

        Raises
        ------
        CheckpointFailed
            If the process has ended or does not answer; it is of no use any more.
        OSError
            If there can be no further process.
        """
        try:
            process = super().fork(descriptors)
            with ExitStack() as undo:
                undo.callback(process.channel.close)
                process.channel.settimeout(_GREETING_SECONDS)
                pid, pidfd = _sender_of_greeting(process.channel)
                process.set_pid(pid, pidfd)
                if _read_pid_namespace(pid) != self._pid_namespace:
                    raise ProcessLookupError
                undo.pop_all()
        except (ParentGoneError, TimeoutError, ConnectionError, ProcessLookupError):
            self.kill()
            raise CheckpointFailed(
                "the checkpoint is lost: its process has ended or does not answer; make a new one"
            ) from None
        return process

    @property
    def _answer_seconds(self) -> float:
        return _GREETING_SECONDS

    def _make_channel(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with suppress(OSError):  # before Linux 6.5
            ours.setsockopt(socket.SOL_SOCKET, _SO_PASSPIDFD, 1)
        return ours, theirs

    def kill(self) -> None:
        """Kill the process; kernels that were forked from it live on."""
        self._retired = True
        self._kill()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # another process may have a copy of its end

    def _has_ended(self) -> bool:
        return self._ends_within(0.0)

    def _ends_within(self, seconds: float) -> bool:
        poll = select.poll()  # not `select`: the server may have thousands of descriptors
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _kill(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _wait(self) -> None:
        self._ends_within(_END_SECONDS)
        with suppress(OSError):  # a server that is the first process of its system gets the orphans
            os.waitpid(self._pid, os.WNOHANG)


def _sender_of_greeting(channel: socket.socket) -> tuple[int, int]:
    """Return the process that has sent a byte, as the system says, and a descriptor of it."""
    byte, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_INT.size))
    pid = pidfd = -1
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        elif (level, kind) == (socket.SOL_SOCKET, _SCM_PIDFD):
            pidfd = _INT.unpack(data[: _INT.size])[0]
    if not byte or pid <= 0:  # there are credentials with a channel that was closed, too: of process 0
        if pidfd >= 0:
            os.close(pidfd)
        raise ConnectionError("the channel was closed")
    return pid, os.pidfd_open(pid) if pidfd < 0 else pidfd


def _peer_descriptor(connection: socket.socket, pid: int) -> int:
    """Return a descriptor of the process that has connected; its number alone may be another's by now."""
    try:
        number: int = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # as before Linux 6.5
            raise
        return os.pidfd_open(pid)
    return number


def _read_pid_namespace(pid: int) -> int:
    """Return the process namespace that a process is in."""
    return os.stat(f"/proc/{pid}/ns/pid").st_ino


class FrozenKernelListener:
    """Socket on which the server waits for the process of a checkpoint.

    Parameters
    ----------
    path : Path
        Where it is to be.

    Raises
    ------
    OSError
        If there can be no socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with ExitStack() as undo:
            self._socket = undo.enter_context(socket.socket(socket.AF_UNIX))
            # Of the socket, which its file gets: the kernel may put a link in the place of the file.
            os.fchmod(self._socket.fileno(), 0o600)
            directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                # By the number of its directory: the path may be too long for a socket.
                self._socket.bind(f"/proc/self/fd/{directory}/{path.name}")
            finally:
                os.close(directory)
            undo.callback(_remove, path)
            self._socket.listen(1)
            undo.pop_all()

    def close(self) -> None:
        """Close the socket, and remove its file."""
        self._socket.close()
        _remove(self._path)

    def accept(self, nonce: str, seconds: float, kernel_pid: int | None = None) -> FrozenKernel:
        """Wait for the process of a checkpoint; blocks.

        Parameters
        ----------
        nonce : str
            Token that the process sends first. Another process may come late, of a request that was given up.
        seconds : float
            Timeout.
        kernel_pid : int or None
            See `FrozenKernel`.

        Raises
        ------
        TimeoutError
            If it does not come.
        CheckpointFailed
            With the kernel's reason, if there is none.
        """
        give_up_at = time.monotonic() + seconds
        while True:
            if time.monotonic() >= give_up_at:  # others may connect again and again
                raise TimeoutError
            self._socket.settimeout(max(0.001, give_up_at - time.monotonic()))
            connection, _ = self._socket.accept()
            with ExitStack() as undo:
                undo.callback(connection.close)
                said = _first_line(connection, give_up_at)
                if said.get("nonce") != nonce:
                    continue
                if "problem" in said:
                    raise CheckpointFailed(str(said["problem"]))
                connection.settimeout(None)
                try:
                    frozen = FrozenKernel(connection, kernel_pid)
                except OSError as error:
                    raise CheckpointFailed(f"the checkpoint's process has ended at once: {error}") from error
                undo.pop_all()
            return frozen


def _remove(path: Path) -> None:
    with suppress(OSError):  # code in a sandbox may have put a directory there
        path.unlink()


def _first_line(connection: socket.socket, give_up_at: float) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, give_up_at - time.monotonic()))
        # One byte a call: what follows is for another reader.
        byte = connection.recv(1)
        line += byte
        if not byte or len(line) > _MAX_LINE_BYTES:
            raise CheckpointFailed("the checkpoint's process has ended, or says something else than it should")
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise CheckpointFailed("the checkpoint's process says something else than it should")
    return said
