"""ZMTP 3.0, the protocol of ZeroMQ sockets, sans I/O: the client's half, with a bound on what one message may take.

libzmq cannot bound a message. `ZMQ_MAXMSGSIZE` limits a frame, but a message may have any number of frames, and all of
them wait in memory for the last one. A kernel that never sends the last one fills the server's memory, whatever the
high-water marks say (measured with libzmq 4.3.5 on 2026-11-25). So the engine speaks the protocol itself.

A Jupyter message is read as far as output needs it: the frames before its content, and the content. Binary buffers
after the content are skipped.

References
----------
https://rfc.zeromq.org/spec/23/
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .kernel_messages import CONTENT_AFTER_DELIMITER, DELIMITER
from .zmtp_frames import COMMAND, ERROR, LONG, MAJOR_VERSION, MORE, READY, SIGNATURE_END, SIGNATURE_START

#: A content that has more is collected in a `FrameBuffer`, and is better read in a worker thread.
LARGE_BYTES = 256 * 1024
#: All frames before the content together. Each is read whole, so a connection has to buffer as much.
MAX_HEAD_BYTES = 1024 * 1024
# Jupyter sends one at most: the topic, on iopub.
_MAX_FRAMES_BEFORE_DELIMITER = 16
_MAX_FRAMES = 4096
_MAX_COMMAND_BYTES = 64 * 1024

_GREETING_BYTES = 64


class ProtocolError(ValueError):
    """The other side does not speak the protocol, so the connection is of no use."""


class FrameBuffer(bytearray):
    """The content of a large message, and the memory that is reserved for it while anything refers to it.

    Parameters
    ----------
    release : callable
        Gets the number of reserved bytes when nothing refers to the buffer any more.
    """

    def __init__(self, release: Callable[[int], None]) -> None:
        super().__init__()
        self.reserved_bytes = 0
        self._release = release

    def __del__(self) -> None:
        """Give the memory back."""
        # Values that were left out are read from the message later, so only the last reference shows when it is free.
        self._release(self.reserved_bytes)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message that was read.

    Parameters
    ----------
    head : list of bytes
        The frames before the content.
    content : bytes or FrameBuffer
        The frame after them; empty if there is none.
    """

    head: list[bytes]
    content: bytes | FrameBuffer


@dataclass(frozen=True, slots=True)
class SkippedMessage:
    """A message that is left out, reported as soon as that is known; what comes behind it is read as usual.

    Parameters
    ----------
    reason : str
        The bound that it exceeds.
    too_large : bool
        True if that is a bound on its size; otherwise it is no Jupyter message.
    """

    reason: str
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Reading has stopped to give others their turn: there is more to read at once, and no whole message yet."""


class _StepEnd(Enum):
    """End of a reading step that neither completes a message nor has to wait."""

    GO_ON = "go on"


# The next step can follow at once. An alias, because looking up an enum's member takes longer at each frame.
_GO_ON: Final = _StepEnd.GO_ON
_StepResult = RawMessage | SkippedMessage | _StepEnd | None
# Frames without content are read at some microseconds each, and a chunk can have 32,000. A step begins or ends a frame.
_STEPS_PER_CALL = 512


class MessageReader:
    """Reads messages from the bytes of one connection.

    Feed it with `feed`, then call `next` until it returns None.

    Parameters
    ----------
    max_message_bytes : int
        A message with more is skipped.
    reserve : callable
        Gets a number of further bytes that a large content takes, and returns whether it may take them. If not, `next`
        returns None, and `waits_for_memory` is set.
    release : callable
        Gets a number of bytes that a large content no longer takes.

    Attributes
    ----------
    buffered_bytes : int
        Number of bytes that were fed and not read yet.
    ready : bool
        True once the other side's handshake has been read.
    waits_for_memory : bool
        True while reading waits until `reserve` allows more.
    """

    def __init__(self, max_message_bytes: int, reserve: Callable[[int], bool], release: Callable[[int], None]) -> None:
        self.buffered_bytes = 0
        self.ready = False
        self.waits_for_memory = False
        self._max_message_bytes = max_message_bytes
        self._reserve = reserve
        self._release = release
        self._chunks: deque[bytes] = deque()
        self._chunk, self._at = b"", 0
        self._greeted = False
        self._begin_message()

    def _begin_message(self) -> None:
        self._head: list[bytes] = []
        self._content_index = -1  # among the frames; known once the delimiter is there
        self._content: bytes | FrameBuffer = b""
        self._frames = self._head_bytes = self._message_bytes = 0
        self._collecting: FrameBuffer | None = None
        self._in_frame = False
        self._left = 0  # of the frame that is collected or skipped
        self._more = False  # whether a frame follows it
        self._skipping = False  # the rest of the message

    @property
    def partial_bytes(self) -> int:
        """The size of the large content of a message that is still incomplete."""
        return self._content.reserved_bytes if isinstance(self._content, FrameBuffer) else 0

    def feed(self, data: bytes) -> None:
        """Take in what was received."""
        self.buffered_bytes += len(data)
        if self._at == len(self._chunk) and not self._chunks:
            self._chunk, self._at = data, 0
        else:
            self._chunks.append(data)

    def skip(self) -> None:
        """Leave out the message that is being read."""
        self._content = b""
        self._collecting = None
        self._skipping = True

    def next(self) -> RawMessage | SkippedMessage | Unfinished | None:
        """Return the next message; None if it is not complete, or has to wait for memory.

        Returns `Unfinished` after a bounded number of frames, so that one call never takes long.

        Raises
        ------
        ProtocolError
            If the other side does not speak ZMTP 3, demands encryption, refuses the connection, sends a message before
            its handshake has ended, or sends an oversized command.
        """
        self.waits_for_memory = False
        for _ in range(_STEPS_PER_CALL):
            if not self.ready:
                step = self._read_handshake()
            else:
                step = self._end_frame() if self._in_frame else self._begin_frame()
            if step is not _GO_ON:
                return step
        return Unfinished()

    # --- bytes

    def _have(self, size: int) -> bool:
        """Return whether so many bytes are there; if so, they are in one chunk."""
        while len(self._chunk) - self._at < size:
            if not self._chunks:
                return False
            # Only starts of frames and frames that are read whole are joined; large contents are taken chunk by chunk.
            self._chunk, self._at = self._chunk[self._at :] + self._chunks.popleft(), 0
        return True

    def _take(self, size: int) -> bytes:
        """Return the next bytes, which are there."""
        start = self._at
        self._at = end = start + size
        self.buffered_bytes -= size
        return self._chunk[start:end]

    def _frame_start(self) -> tuple[int, int, int] | None:
        """Return a frame's flags, its size and how many bytes say so; None if not all of these are there."""
        if not self._have(2):
            return None
        flags = self._chunk[self._at]
        if not flags & LONG:
            return flags, self._chunk[self._at + 1], 2
        if not self._have(9):
            return None
        return flags, int.from_bytes(self._chunk[self._at + 1 : self._at + 9], "big"), 9

    # --- handshake and commands

    def _read_handshake(self) -> _StepResult:
        if not self._greeted:
            if not self._have(_GREETING_BYTES):
                return None
            greeting = self._take(_GREETING_BYTES)
            if greeting[0] != SIGNATURE_START or greeting[9] != SIGNATURE_END or greeting[10] < MAJOR_VERSION:
                raise ProtocolError("the kernel's socket does not speak ZMTP 3")
            mechanism = greeting[12:32].rstrip(b"\0").decode("ascii", "replace")
            if mechanism != "NULL":
                raise ProtocolError(
                    f"the kernel's socket demands the security mechanism {mechanism!r}; only NULL is supported"
                )
            self._greeted = True
        start = self._frame_start()
        if start is not None and not start[0] & COMMAND:
            raise ProtocolError("the kernel's socket sends a message before its command READY")
        return None if start is None else self._read_command(start[1], start[2])

    def _read_command(self, size: int, start_bytes: int) -> _StepResult:
        """Read a command: READY, or one that means nothing here."""
        if size > _MAX_COMMAND_BYTES:
            raise ProtocolError(
                f"the kernel's socket sends a command of {size:,} bytes; at most {_MAX_COMMAND_BYTES:,} are allowed"
            )
        if not self._have(start_bytes + size):
            return None
        command = self._take(start_bytes + size)[start_bytes:]
        if command.startswith(ERROR):
            # After the command's name come the reason's length, in one byte, and the reason.
            reason = command[len(ERROR) + 1 :][:255].decode("utf-8", "replace")
            raise ProtocolError(f"the kernel's socket refuses the connection: {reason!r}")
        self.ready = self.ready or command.startswith(READY)
        return _GO_ON

    # --- messages

    def _begin_frame(self) -> _StepResult:
        """Begin to read a frame; one that is kept as it is, and not collected, is read whole."""
        start = self._frame_start()
        if start is None:
            return None
        flags, size, start_bytes = start
        if flags & COMMAND:
            return self._read_command(size, start_bytes)
        is_content = self._frames == self._content_index
        is_head = self._content_index < 0 or self._frames < self._content_index
        is_large = is_content and size > LARGE_BYTES
        # The announced size is enough to refuse a message, before any of it is buffered.
        problem = None if self._skipping else self._problem_with(size, is_head)
        if problem is not None:
            self.skip()
        left = size
        if (is_head or is_content) and not (is_large or self._skipping):
            if not self._have(start_bytes + size):
                return None
            self._keep(self._take(start_bytes + size)[start_bytes:], is_content)
            left = 0
        else:
            self._take(start_bytes)
            if is_large and not self._skipping:
                self._content = self._collecting = FrameBuffer(self._release)
        self._frames += 1
        self._message_bytes += size
        self._left, self._more, self._in_frame = left, bool(flags & MORE), True
        # Reported now: the end of the message may never come.
        return problem or _GO_ON

    def _problem_with(self, size: int, is_head: bool) -> SkippedMessage | None:
        """Return what is wrong with a message that goes on with a frame of this size."""
        if self._message_bytes + size > self._max_message_bytes:
            return SkippedMessage(f"a message has more than {self._max_message_bytes:,} bytes", too_large=True)
        if self._frames >= _MAX_FRAMES:
            return SkippedMessage(f"a message has more than {_MAX_FRAMES:,} frames", too_large=True)
        if is_head and self._head_bytes + size > MAX_HEAD_BYTES:
            return SkippedMessage(f"a message has more than {MAX_HEAD_BYTES:,} bytes before its content")
        if self._content_index < 0 and self._frames >= _MAX_FRAMES_BEFORE_DELIMITER:
            return SkippedMessage("a message has no delimiter")
        return None

    def _keep(self, frame: bytes, is_content: bool) -> None:
        if is_content:
            self._content = frame
            return
        self._head.append(frame)
        self._head_bytes += len(frame)
        if self._content_index < 0 and frame == DELIMITER:
            self._content_index = self._frames + CONTENT_AFTER_DELIMITER

    def _end_frame(self) -> _StepResult:
        """Collect or skip what is left of a frame; end the message with the last one."""
        while self._left:
            size = min(self._left, len(self._chunk) - self._at)
            if size == 0:
                if not self._have(1):
                    return None
                continue
            # Memory is reserved for what has arrived. A kernel can announce much and never send it.
            if self._collecting is not None and not self._reserve(size):
                if self._collecting is not None:  # and it was not given up meanwhile
                    self.waits_for_memory = True
                    return None
                continue
            self._left -= size
            data = self._take(size)
            if self._collecting is not None:
                self._collecting.reserved_bytes += size
                self._collecting += data
        self._in_frame, self._collecting = False, None
        return _GO_ON if self._more else self._end_message()

    def _end_message(self) -> _StepResult:
        head, content, skipped = self._head, self._content, self._skipping
        has_delimiter = self._content_index >= 0
        self._begin_message()
        if skipped:
            return _GO_ON
        return RawMessage(head, content) if has_delimiter else SkippedMessage("a message has no delimiter")
