"""Handle of one fork parent: starts it, asks it for kernels, and receives their exits; and of the forked kernels.

A kernel is a `subprocess.Popen`, the interface by which Jupyter knows a process.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ..protocol.kernel_preparation import BOUNDED_OUTPUT, DEFAULTS
from .fork_program import ROOM
from .forkable_command import NotForkableError, Program

#: The return code of a kernel that outlived its parent: how it ended cannot be known.
UNKNOWN_EXIT = 255


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that is another's child. Its parent reports when it has ended, and how.

    Parameters
    ----------
    channel : socket.socket
        The process has the other end, and ends itself when this one is closed: so it goes with the process that started
        it, and with this object.
    """

    # `Popen` would take it for a child of this process when the garbage collector comes.
    _child_created = False

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.args = ()
        self.pid = pid
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        #: How it ended, as `Popen` tells it; None if that is not known.
        self.exited: concurrent.futures.Future[int | None] = concurrent.futures.Future()
        # A caller that gives up waiting must not cancel it for all others.
        self.exited.set_running_or_notify_cancel()
        self.channel = channel
        # No `__del__`: of objects that refer to each other, the garbage collector may end the socket before its owner.
        weakref.finalize(self, channel.close)

    def end(self, code: int | None) -> None:
        """Note that it has ended."""
        # In this order: `wait` reads the return code as soon as the future is done.
        self.returncode = UNKNOWN_EXIT if code is None else code
        self.channel.close()
        self.exited.set_result(code)

    def poll(self) -> int | None:
        """Return how it ended; None if it has not."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return how it ended."""
        try:
            self.exited.result(timeout)
        except concurrent.futures.TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


_START_SECONDS = 120.0
_FORK_SECONDS = 10.0
_END_SECONDS = 5.0
_WATCH_SECONDS = 0.25
_REQUEST = b"f"
# Beyond what the parent's own environment takes: for the variables that only kernels have.
_ROOM_BYTES = 4096
# The parent imports the debugger, which warns of frozen modules on standard error. Kernels do not inherit the variable:
# each gets the environment that its start request names.
_QUIET_DEBUGGER = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}


class ParentGoneError(Exception):
    """A fork parent has ended, or does not answer; another one can be started."""


class ThreadsError(NotForkableError):
    """A module starts threads when it is imported, which would not outlive a fork.

    Parameters
    ----------
    module : str
    """

    def __init__(self, module: str) -> None:
        super().__init__(f"{module} starts threads when it is imported, which would not outlive a fork")
        self.module = module


class ForkParent:
    """A running fork parent. To make one takes as long as its imports do.

    Raises
    ------
    NotForkableError
        If it could not become one.
    """

    def __init__(self, program: Program) -> None:
        self._lock = threading.Lock()
        self._asked: deque[tuple[concurrent.futures.Future[ForkedProcess], socket.socket]] = deque()
        self._living: dict[int, weakref.ref[ForkedProcess] | None] = {}
        self._retired = False
        self._socket, theirs = socket.socketpair()
        with ExitStack() as undo:
            undo.callback(self._socket.close)
            # Our copy is closed, so that our socket ends when the parent's does.
            with theirs:
                self._process = self._start(program, theirs)
            undo.callback(self._process.wait)  # after the kill: the callbacks run in reverse
            undo.callback(self._process.kill)
            self._lines = undo.enter_context(self._socket.makefile("rb"))
            said = self._first_report()
            undo.pop_all()
        self._stamps: dict[str, int] = said["stamps"]
        #: Notes on its start, for the log.
        self.notes: list[str] = said["notes"]
        threading.Thread(target=self._read, name="forkserver-reader", daemon=True).start()

    @staticmethod
    def _start(program: Program, theirs: socket.socket) -> subprocess.Popen[bytes]:
        files = {"bounded_output": str(BOUNDED_OUTPUT), "defaults": str(DEFAULTS)}
        orders = {"arguments": program.arguments, "preload": program.preload, **files}
        file = str(Path(__file__).with_name("fork_program.py"))
        try:
            return subprocess.Popen(
                [program.python, *program.options, file, str(theirs.fileno()), json.dumps(orders)],
                stdin=subprocess.DEVNULL,
                env={**_QUIET_DEBUGGER, **dict(program.environment), ROOM: "x" * _ROOM_BYTES},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise NotForkableError(f"{program.python} cannot be started: {error}") from error

    def _first_report(self) -> dict[str, Any]:
        self._socket.settimeout(_START_SECONDS)
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise NotForkableError(f"its parent is not ready after {_START_SECONDS:g} s") from None
        self._socket.settimeout(None)
        if not line:
            raise NotForkableError("its parent has ended before it was ready; see what it has printed")
        said: dict[str, Any] = json.loads(line)
        if "module" in said:
            raise ThreadsError(said["module"])
        if "problem" in said:
            raise NotForkableError(f"its parent could not import what it needs: {said['problem']}")
        return said

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """True if it has ended, or was told to."""
        return self._retired or self._process.poll() is not None

    @property
    def is_outdated(self) -> bool:
        """True if what it has imported has changed since: packages were installed, or the configuration is another."""
        return any(_changed_at(path) != stamp for path, stamp in self._stamps.items())

    def fork(self, descriptors: Sequence[int]) -> ForkedProcess:
        """Fork a kernel.

        Parameters
        ----------
        descriptors : sequence of int
            Its standard input, output and error.

        Raises
        ------
        ParentGoneError
            If there is no parent any more.
        OSError
            If there can be no further process, or a descriptor is not open.
        """
        ours, theirs = socket.socketpair()
        asked: concurrent.futures.Future[ForkedProcess] = concurrent.futures.Future()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)  # if there is a kernel after all, it ends with this
            try:
                # The parent answers in order, so the queue and the socket need the same order of requests.
                with self._lock:
                    if self.is_gone:
                        raise ParentGoneError
                    socket.send_fds(self._socket, [_REQUEST], [*descriptors, theirs.fileno()])
                    self._asked.append((asked, ours))  # only now: what could not be sent gets no answer
                process = asked.result(_FORK_SECONDS)
            except ConnectionError:
                self._retired = True  # it may have closed its socket, and not have ended yet
                raise ParentGoneError from None
            except concurrent.futures.TimeoutError:
                self._retired = True
                self._process.kill()
                raise ParentGoneError from None
            undo.pop_all()
            return process

    def retire(self) -> None:
        """Ask nothing more of it; it ends with the last of its kernels."""
        with self._lock:
            self._retired = True
            self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._retired and not self._living and not self._asked:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)  # its last reports can still be read

    # --- in a thread of its own ---

    def _read(self) -> None:
        try:
            with suppress(OSError):
                for line in self._lines:
                    word, *numbers = line.decode().split()
                    with self._lock:
                        getattr(self, f"_{word}")(*map(int, numbers))
                        self._end_if_unused()
        finally:
            self._end()

    def _forked(self, pid: int) -> None:
        asked, channel = self._asked.popleft()
        process = ForkedProcess(pid, channel)
        # Weakly, so that a kernel to which nothing refers any more ends by its channel.
        self._living[pid] = weakref.ref(process)
        asked.set_result(process)

    def _failed(self, number: int) -> None:
        asked, channel = self._asked.popleft()
        channel.close()
        asked.set_exception(OSError(number, os.strerror(number)))

    def _exited(self, pid: int, code: int) -> None:
        process = self._living.pop(pid)
        # Nothing may refer to the kernel any more, such as after a start that was cancelled.
        if process is not None and (still_wanted := process()) is not None:
            still_wanted.end(code)

    def _end(self) -> None:
        """Note the end of the parent. Its kernels live on, but how they end can no longer be known."""
        # It may have closed its socket and still run.
        self._process.kill()
        self._process.wait()
        self._lines.close()
        with self._lock:
            self._socket.close()
            self._retired = True
            for asked, channel in self._asked:
                channel.close()
                asked.set_exception(ParentGoneError())
            self._asked.clear()
        _watch_orphans(self._living)


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _watch_orphans(living: dict[int, Any]) -> None:
    """Wait for the ends of kernels whose parent has ended."""
    if hasattr(os, "pidfd_open"):
        _watch_descriptors(living)
        return
    while living:
        for pid in [pid for pid in living if not _exists(pid)]:
            _note_end(living, pid)
        time.sleep(_WATCH_SECONDS)


def _watch_descriptors(living: dict[int, Any]) -> None:
    with selectors.DefaultSelector() as selector:
        for pid in list(living):
            try:
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
            except ProcessLookupError:
                _note_end(living, pid)
        while living:
            for key, _ in selector.select():
                selector.unregister(key.fd)
                os.close(key.fd)
                _note_end(living, key.data)


def _note_end(living: dict[int, Any], pid: int) -> None:
    process = living.pop(pid)()
    if process is not None:
        process.end(None)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
