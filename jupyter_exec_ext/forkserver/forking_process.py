"""Server's end of a process that forks on request: asks it for forks, and learns how they end.

`fork_requests` is the other end of the socket.
"""

from __future__ import annotations

import concurrent.futures
import os
import socket
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO

from .forked_process import ForkedProcess, watch_orphans

_FORK_SECONDS = 10.0
_REQUEST = b"f"
_MAX_LINE_BYTES = 64


class ParentGoneError(Exception):
    """The process that forks has ended, or does not answer."""


class ForkingProcess(ABC):
    """A process that forks on request.

    Parameters
    ----------
    connection : socket.socket
        Leads to the process.
    lines : file
        The connection's reports.
    """

    def __init__(self, connection: socket.socket, lines: IO[bytes]) -> None:
        self._socket, self._lines = connection, lines
        self._lock = threading.Lock()
        self._asked: deque[tuple[concurrent.futures.Future[ForkedProcess], socket.socket]] = deque()
        self._living: dict[int, weakref.ref[ForkedProcess] | None] = {}
        self._retired = False
        threading.Thread(target=self._read, name="forkserver-reader", daemon=True).start()

    @property
    @abstractmethod
    def pid(self) -> int:
        """Its process."""

    @property
    def is_gone(self) -> bool:
        """True if it has ended, or was told to."""
        return self._retired or self._has_ended()

    @property
    def _answer_seconds(self) -> float:
        """Timeout of a request."""
        return _FORK_SECONDS

    @abstractmethod
    def _has_ended(self) -> bool:
        """Return whether its process has ended."""

    @abstractmethod
    def _kill(self) -> None:
        """Kill its process, which may not answer any more, without waiting for its end."""

    @abstractmethod
    def _wait(self) -> None:
        """Wait for the end of its process, which was killed."""

    def fork(self, descriptors: Sequence[int]) -> ForkedProcess:
        """Fork a child.

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
        ours, theirs = self._make_channel()
        asked: concurrent.futures.Future[ForkedProcess] = concurrent.futures.Future()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)  # if there is a child after all, it ends with this
            try:
                # The parent answers in order, so the queue and the socket need the same order of requests.
                with self._lock:
                    if self.is_gone:
                        raise ParentGoneError
                    socket.send_fds(self._socket, [_REQUEST], [*descriptors, theirs.fileno()])
                    self._asked.append((asked, ours))  # only now: what could not be sent gets no answer
                    place = len(self._asked)
                process = asked.result(self._answer_seconds * place)  # they are answered one after the other
            except ConnectionError:
                self._retired = True  # it may have closed its socket, and not have ended yet
                raise ParentGoneError from None
            except concurrent.futures.TimeoutError:
                self._retired = True
                self._kill()
                raise ParentGoneError from None
            undo.pop_all()
            return process

    def _make_channel(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a new channel to a child, ours first."""
        return socket.socketpair()

    def retire(self) -> None:
        """Ask nothing more of it; it ends with the last of its children."""
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
            # What is no report, or one of nothing that was asked for, is the end of the process.
            with suppress(OSError, ValueError, LookupError):
                while line := self._lines.readline(_MAX_LINE_BYTES):
                    word, *numbers = line.decode("ascii").split()
                    with self._lock:
                        self._take_report(word, [int(number) for number in numbers])
                        self._end_if_unused()
        finally:
            self._end()

    def _take_report(self, word: str, numbers: list[int]) -> None:
        if word == "forked":
            (pid,) = numbers
            self._forked(pid)
        elif word == "failed":
            (number,) = numbers
            self._failed(number)
        elif word == "exited":
            pid, code = numbers
            self._exited(pid, code)
        else:
            raise ValueError(word)

    def _forked(self, pid: int) -> None:
        if pid in self._living:
            raise ValueError(pid)
        asked, channel = self._asked.popleft()
        process = ForkedProcess(pid, channel)
        # Weakly, so that a child to which nothing refers any more ends by its channel.
        self._living[pid] = weakref.ref(process)
        asked.set_result(process)

    def _failed(self, number: int) -> None:
        asked, channel = self._asked.popleft()
        channel.close()
        asked.set_exception(OSError(number, os.strerror(number)))

    def _exited(self, pid: int, code: int) -> None:
        process = self._living.pop(pid)
        # Nothing may refer to the child any more, such as after a start that was cancelled.
        if process is not None and (still_wanted := process()) is not None:
            still_wanted.end(code)

    def _end(self) -> None:
        """Note the end of the process. Its children live on, but how they end can no longer be known."""
        # It may have closed its socket and still run.
        self._kill()
        self._wait()
        self._lines.close()
        with self._lock:
            self._socket.close()
            self._retired = True
            for asked, channel in self._asked:
                channel.close()
                asked.set_exception(ParentGoneError())
            self._asked.clear()
        watch_orphans(self._living)
