"""`ZmtpChannel`: a connection to a kernel's socket in ZMTP, with bounded buffers and reconnects.

libzmq cannot bound what it keeps of a message; ``protocol/zmtp.py`` says more.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ...errors import KernelStartFailed
from ...protocol.zmtp import MAX_HEAD_BYTES, MessageReader, ProtocolError, RawMessage, SkippedMessage, Unfinished
from ...protocol.zmtp_frames import encode_message, opening, subscription
from .backpressure import KernelMemory

_log = logging.getLogger(__name__)

_RECEIVE_BYTES, _LARGE_RECEIVE_BYTES = 64 * 1024, 256 * 1024
# Of what `receive` has not returned, while it is called. More than the largest frame that is read whole: a channel that
# buffers less waits for the rest of it for ever.
_READ_ON_BYTES = MAX_HEAD_BYTES + _RECEIVE_BYTES
_MAX_UNSENT_BYTES = 64 * 1024 * 1024
# How soon a failed connection is tried again: soon while a kernel starts, and seldom later.
_LEAST_RETRY_SECONDS, _MOST_RETRY_SECONDS, _RETRY_FACTOR = 0.01, 0.5, 1 / 30
# A socket that violates the protocol is tried again and again, and may violate it each time.
_WARNING_INTERVAL_SECONDS = 60.0


class ZmtpChannel:
    """A connection in ZMTP over a Unix socket or TCP, which is made anew when it is lost.

    Parameters
    ----------
    socket_type : str
        ``"DEALER"`` or ``"SUB"``.
    address : str or (str, int)
        The path of a Unix socket, or an IP address and a port.
    """

    def __init__(
        self,
        socket_type: str,
        address: str | tuple[str, int],
        identity: bytes,
        memory: KernelMemory,
        on_input: Callable[[], None],
        *,
        read_ahead_bytes: int,
    ) -> None:
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._socket_type = socket_type
        self._address = address
        self._identity = identity
        self._memory = memory
        self._on_input = on_input
        self._read_ahead_bytes = read_ahead_bytes
        self._reader = self._new_reader()
        self._socket: socket.socket | None = None
        self._ended = False  # by the other side; what it sent before is still to be received
        self._paused = self._watching = self._writing = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_partly_sent = False
        self._trying_since = time.monotonic()
        self._retry: asyncio.TimerHandle | None = None
        self._no_warning_before = 0.0
        self._connect()

    def _new_reader(self) -> MessageReader:
        return MessageReader(self._memory.max_message_bytes, self._memory.reserve, self._memory.release)

    # --- the connection

    def _connect(self) -> None:
        self._retry = None
        family = socket.AF_UNIX if isinstance(self._address, str) else _family_of(self._address[0])
        made = socket.socket(family, socket.SOCK_STREAM)
        with ExitStack() as undo:
            undo.callback(made.close)
            try:
                made.setblocking(False)
                if isinstance(self._address, str):
                    _connect_to_path(made, self._address)
                else:
                    # Requests are small and are waited for. Nagle's algorithm could hold one back.
                    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    made.connect(self._address)
            except OSError as error:
                # EINPROGRESS is how a connection begins. A Unix socket whose queue is full has another number.
                if error.errno != errno.EINPROGRESS:
                    self._connect_later()
                    return
            undo.pop_all()
        self._socket = made
        self._loop.add_writer(made, self._begin)

    def _connect_later(self) -> None:
        passed = time.monotonic() - self._trying_since
        delay = min(max(_LEAST_RETRY_SECONDS, passed * _RETRY_FACTOR), _MOST_RETRY_SECONDS)
        self._retry = self._loop.call_later(delay, self._try_again)

    def _try_again(self) -> None:
        try:
            self._connect()
        # Only the first connection reports these errors, to the session's start. A timer has no caller.
        except (OSError, KernelStartFailed):
            self._connect_later()

    def _begin(self) -> None:
        """Go on with a socket that is connected, or could not be."""
        made = self._socket
        assert made is not None
        self._loop.remove_writer(made)
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and made.family != socket.AF_UNIX and made.getsockname() == made.getpeername():
            code = errno.ECONNREFUSED  # nothing listens there, and the system has connected the socket to itself
        if code:
            self._fail(made)
            return
        try:
            made.send(opening(self._socket_type, self._identity))  # the first bytes always find room
        except OSError:
            self._fail(made)
            return
        self._watch_input()

    def _fail(self, made: socket.socket) -> None:
        self._socket = None
        made.close()
        self._connect_later()

    def _lose(self) -> None:
        """Give up the connection, after everything in it was received, and try to make another one."""
        self._drop_socket()
        if self._is_partly_sent:  # the rest of a message would be no message
            self._unsent_bytes -= len(self._unsent.popleft())
        self._is_partly_sent = self._ended = False
        self._reader = self._new_reader()
        self._trying_since = time.monotonic()
        self._connect_later()

    def _warn(self, error: ProtocolError) -> None:
        """Log why the connection is given up, unless a warning about this channel was logged shortly before."""
        now = time.monotonic()
        if now >= self._no_warning_before:
            self._no_warning_before = now + _WARNING_INTERVAL_SECONDS
            _log.warning("the connection to a kernel at %s failed and is tried again: %s", self._address, error)

    def _drop_socket(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self._socket = None
        self._watching = self._writing = False

    def close(self) -> None:
        """Close the connection; what was not received is dropped."""
        self.closed = True
        self._drop_socket()
        if self._retry is not None:
            self._retry.cancel()
        self._unsent.clear()
        # The old one's buffers count as the kernel's memory for as long as they exist.
        self._reader = self._new_reader()

    # --- receiving

    @property
    def has_input(self) -> bool:
        """True if something has arrived that `receive` has not returned yet."""
        return self._reader.buffered_bytes > 0

    def partial_bytes(self) -> int:
        """Return the size of a large message that is still incomplete."""
        return self._reader.partial_bytes

    def skip(self) -> None:
        """Leave out the message that is still incomplete."""
        self._reader.skip()

    def pause(self) -> None:
        """Report no further input; some of it is read ahead."""
        self._paused = True
        self._watch_input()

    def resume(self) -> None:
        """Report input again."""
        self._paused = False
        self._watch_input()

    def _watch_input(self) -> None:
        if self._socket is None:
            return
        ahead = self._read_ahead_bytes if self._paused else _READ_ON_BYTES
        # A socket that is watched but not read stays ready, so that the event loop would never rest.
        wanted = not self._ended and self._reader.buffered_bytes < ahead
        if wanted and not self._watching:
            self._loop.add_reader(self._socket, self._on_readable)
        elif self._watching and not wanted:
            self._loop.remove_reader(self._socket)
        self._watching = wanted

    def _on_readable(self) -> None:
        self.fill()
        if self._paused:
            self._watch_input()
        else:
            self._on_input()

    def fill(self) -> bool:
        """Read some of what has arrived; return whether there was anything."""
        if self._socket is None or self._ended:
            return False
        try:
            # One read a call: the loop calls again while there is more, and others have their turn in between.
            data = self._socket.recv(_LARGE_RECEIVE_BYTES if self._reader.partial_bytes else _RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""  # an end like any other: what came before it is read first
        self._reader.feed(data)
        self._ended = not data
        return bool(data)

    def receive(self) -> RawMessage | SkippedMessage | Unfinished | None:
        """Return the next message that has arrived; None if there is none."""
        # ZMTP allows no message before the other side's READY, which `next` reads.
        was_ready = self._reader.ready
        try:
            message = self._reader.next()
        except ProtocolError as error:
            self._warn(error)
            self._lose()
            return None
        if self._reader.ready and not was_ready:
            self._begin_sending()
        # A message that waits for memory arrived before the end of the stream and still has to be read.
        if message is None and self._ended and not self._reader.waits_for_memory:
            self._lose()
        elif message is None:
            self._watch_input()
        return message

    # --- sending

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, as soon as there is a connection."""
        data = encode_message(frames)
        if self._unsent_bytes + len(data) > _MAX_UNSENT_BYTES:
            self._unsent.clear()
            self._unsent_bytes = 0
            self._is_partly_sent = False  # its rest is gone; `_lose` must not take it from the queue
            self._lose()  # the kernel does not read what it is sent
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        self._write()

    def _begin_sending(self) -> None:
        if self._socket_type == "SUB":  # again on each connection, with which a subscription ends
            self._unsent.append(memoryview(subscription()))
            self._unsent_bytes += len(self._unsent[-1])
        self._write()

    def _write(self) -> None:
        """Send as much as there is room for."""
        if self._socket is None or not self._reader.ready:
            return
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                self._unsent_bytes -= sent
                self._is_partly_sent = sent < len(self._unsent[0])
                if self._is_partly_sent:
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except (BlockingIOError, InterruptedError):
            pass  # the writer goes on
        except OSError:
            self._ended = True  # what it has sent before is still to be received
            # Not called at once: `send` may itself be called while a message is taken in.
            self._loop.call_soon(self._on_input)
            return
        if bool(self._unsent) != self._writing:
            self._writing = bool(self._unsent)
            if self._writing:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)


def _family_of(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _connect_to_path(made: socket.socket, path: str) -> None:
    """Connect to a Unix socket, and to nothing else that a kernel has put in its place, such as a link to another one.

    Raises
    ------
    KernelStartFailed
        If it is something else.
    OSError
    """
    if not hasattr(os, "O_PATH"):
        _require_socket(os.lstat(path), path)
        made.connect(path)
        return
    # Checked and connected to by one descriptor, so that it is not replaced in between.
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _require_socket(os.fstat(descriptor), path)
        made.connect(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _require_socket(found: os.stat_result, path: str) -> None:
    if not stat.S_ISSOCK(found.st_mode):
        raise KernelStartFailed(f"what the kernel has at {os.path.basename(path)!r} is no socket")
