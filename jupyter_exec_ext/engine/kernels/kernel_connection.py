"""Connection to a kernel: its four channels, read on the event loop.

A kernel's messages are as hostile as the code that it runs. Each is bounded in size, checked once, and handed to the
session; whatever a message does, the ones behind it are read.

`connection_check` checks a new connection before it is used.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

from ...protocol.kernel_messages import FrameCodec, KernelMessage
from ...protocol.large_messages import read_large
from ...protocol.zmtp import FrameBuffer, SkippedMessage, Unfinished
from .connection_check import ConnectionCheck
from .kernel_channel import CHANNELS, KernelChannel, open_channel
from .shared_resources import EngineResources

# One kernel keeps the event loop for a turn at most, and then all others are served.
_MESSAGES_PER_TURN = 32
_TURN_SECONDS = 0.002
# After hundreds of frames that are no message, so that a kernel that sends such frames takes little of the event loop.
_REST_SECONDS = 0.02
_FEW_MESSAGES = 8  # a run that prints a little has no more at a time
_PIECES_PER_TURN = 4  # of 256 KiB each (`protocol/large_json_parser.py`)
# Read-ahead of a kernel while others have their turn. A kernel that waits for its readers needs none of it. Any other
# drops what its own queue of 1,000 messages cannot take.
_READ_AHEAD_BYTES = {"waits": 0, "drops": 16 * 1024 * 1024}
# Memory for reading a large message, beside the message itself.
_READING_BYTES = 48 * 1024 * 1024


class KernelConnection:
    """The channels to one kernel process.

    Parameters
    ----------
    resources : EngineResources
        Resources that all connections share.
    info : mapping
        Addresses and key, as in a connection file.
    on_message : callable
        Gets every message that is not an answer to a probe.
    on_too_large : callable
        Gets the reason when a message was left out because of its size.
    can_wait : bool
        Whether it is a kernel that can be made to wait when it writes faster than it is read.
    waits : bool
        Whether the kernel was made to wait before it began.
    draws_plots : bool
        Whether such a kernel adds pictures to plots.
    may_be_busy : bool
        Whether it may be running something already, so that the shell channel does not answer.

    Raises
    ------
    KernelStartFailed
        If the kernel has put something else in the place of a socket.
    OSError, zmq.ZMQError
        If this process can open nothing more.
    """

    def __init__(
        self,
        resources: EngineResources,
        info: Mapping[str, Any],
        on_message: Callable[[KernelMessage], None],
        *,
        on_too_large: Callable[[str], None] = lambda reason: None,
        can_wait: bool = False,
        waits: bool = False,
        draws_plots: bool = False,
        may_be_busy: bool = False,
    ) -> None:
        self._info = info
        self._connection_check = ConnectionCheck(
            self, can_wait=can_wait and not waits, draws_plots=draws_plots, may_be_busy=may_be_busy
        )
        self.waits = waits
        self._loop = asyncio.get_running_loop()
        self._resources = resources
        self._memory = resources.message_memory.open(self)
        self._on_message = on_message
        self._on_too_large = on_too_large
        key = info.get("key", b"")
        self._codec = FrameCodec(
            key.encode() if isinstance(key, str) else key,
            info.get("signature_scheme", "hmac-sha256"),
            uuid.uuid4().hex,
        )
        self._turns: dict[str, asyncio.Future[bool]] = {}
        self._question = ""
        self._answered = asyncio.Event()
        self.asked_at: float | None = None
        self.answers_on_control = False
        self._channels: dict[str, KernelChannel] = {}
        self._paused: set[str] = set()  # until their next turn
        self._large: dict[str, asyncio.Task[None]] = {}  # by the channel whose message is being read
        with ExitStack() as undo:
            undo.callback(self.close)  # a later channel may find no descriptor
            for channel in CHANNELS:
                if channel != "iopub":
                    self._connect(channel)
            # Otherwise the check opens it, once the kernel has agreed to wait; see `ConnectionCheck._check`.
            if waits or not can_wait:
                self.connect_output()
            undo.pop_all()

    def _connect(self, name: str) -> None:
        self._channels[name] = open_channel(
            name,
            self._info,
            # The kernel sends input requests to the identity that sent the execute request.
            self._codec.session_id.encode(),
            self._memory,
            partial(self._drain, name),
            self._resources.context,
            read_ahead_bytes=_READ_AHEAD_BYTES["waits" if self.waits else "drops"] if name == "iopub" else 0,
        )

    def connect_output(self) -> None:
        """Open the output channel, which subscribes to all output."""
        self._connect("iopub")

    def send(
        self, channel: str, msg_type: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Send a message and return its id."""
        msg_id, frames = self._codec.encode(msg_type, content, metadata)
        self._channels[channel].send(frames)
        return msg_id

    # --- receiving

    def _drain(self, name: str) -> None:
        """Take in what has arrived on a channel, for as long as one turn may take."""
        channel = self._channels[name]
        if name in self._paused or name in self._large:
            return
        give_way_at = time.thread_time() + _TURN_SECONDS  # of work: nothing is gained by a rest after a wait
        for number in range(_MESSAGES_PER_TURN):
            if not self._receive_next(name, channel):
                # A flood comes in bursts. After many messages others come first, even if nothing waits at this moment.
                if number < _FEW_MESSAGES:
                    return
                break
            if channel.closed or name in self._large or name in self._paused:
                return
            if time.thread_time() > give_way_at:
                break
        self._pause(name)
        self._resources.turns.take(partial(self._go_on, name))  # others first

    def _pause(self, name: str) -> None:
        """Take in nothing more of a channel until `_go_on`."""
        self._paused.add(name)
        self._channels[name].pause()

    def _go_on(self, name: str) -> None:
        self._paused.discard(name)
        channel = self._channels[name]
        if not channel.closed:
            channel.resume()
            self._drain(name)

    def _receive_next(self, name: str, channel: KernelChannel) -> bool:
        """Take in one message or a part of one, whatever is wrong with it; return False if there is nothing."""
        try:
            message = channel.receive()
            if message is None:
                return False
            if isinstance(message, Unfinished):
                self._pause(name)
                self._loop.call_later(_REST_SECONDS, self._go_on, name)
            elif isinstance(message, SkippedMessage):
                self._note_skipped(name, message)
            elif isinstance(message.content, FrameBuffer):
                # Otherwise the socket, which stays readable, would call us again and again.
                channel.pause()
                reading = self._receive_large(name, message.head, message.content)
                self._large[name] = self._loop.create_task(reading)
            else:
                self._dispatch(self._codec.decode(name, [*message.head, message.content]))
        except (ValueError, RecursionError) as error:
            self._note_improper(name, error)
        except Exception:  # a defect of ours, which a kernel can cause again and again
            self._note_defect(name)
        return True

    async def _receive_large(self, name: str, head: list[bytes], content: FrameBuffer) -> None:
        """Read a large message in a worker thread; the channel is read no further before that is done."""
        spare = self._memory.max_message_bytes - len(content) + _READING_BYTES
        reading = read_large(self._codec, name, head, content, self._resources.max_value_bytes, spare)
        del content  # its memory is given back once nothing of it is needed any more
        try:
            while parts := await self._in_worker(_next_parts, reading):
                for part in () if self._channels[name].closed else parts:
                    self._dispatch(part)
                await self._resources.until_few_wait()  # or what is spooled would wait in memory for the disk
        except (ValueError, RecursionError) as error:
            self._note_improper(name, error)
        except Exception:  # a defect of ours, as in `_receive_next`; the channel is read on
            self._note_defect(name)
        finally:
            del self._large[name]
            self._go_on(name)

    async def _in_worker(self, work: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._resources.workers, work, *args)

    def _note_skipped(self, name: str, message: SkippedMessage) -> None:
        kind = f"oversized messages on {name}" if message.too_large else f"improper messages on {name}"
        self._resources.warnings.warn(kind, "left out a kernel's message on %s: %s", name, message.reason)
        if message.too_large:
            self._on_too_large(f"{message.reason} (max_message_bytes)")

    def _note_improper(self, name: str, error: Exception) -> None:
        self._resources.warnings.warn(
            f"improper messages on {name}", "left out a kernel's message on %s: %s", name, error
        )

    def _note_defect(self, name: str) -> None:
        self._resources.warnings.log_defect(f"messages on {name} that could not be taken in")

    @property
    def reading(self) -> bool:
        """True while something has arrived that was not taken in yet."""
        return bool(self._large or self._paused) or any(channel.has_input for channel in self._channels.values())

    def catch_up(self) -> None:
        """Take in what has arrived and was not read yet."""
        for name, channel in self._channels.items():
            channel.fill()
            self._drain(name)

    # --- memory for large messages

    def partial_bytes(self) -> int:
        """Return the size of the messages that are still incomplete."""
        return sum(channel.partial_bytes() for channel in self._channels.values())

    def give_up_largest(self, reason: str) -> None:
        """Give up the largest message that is still incomplete."""
        name, channel = max(self._channels.items(), key=lambda item: item[1].partial_bytes())
        channel.skip()
        self._resources.warnings.warn(
            f"oversized messages on {name}", "left out a kernel's message on %s: %s", name, reason
        )
        self._on_too_large(reason)

    def memory_available(self) -> None:
        """Go on with a message that had to wait."""
        for name in self._channels:
            self._drain(name)

    # --- the kernel's pulse, on the control channel ---

    def look(self) -> None:
        """Take in answers that have arrived and were not read yet."""
        self._channels["control"].fill()
        self._drain("control")

    def ask(self) -> None:
        """Ask the kernel for a sign of life; `asked_at` is None again when it has answered."""
        self._answered.clear()
        # Before sending: `HealthWatch` measures from here how long an answer takes.
        self.asked_at = self._loop.time()
        self._question = self.send("control", "kernel_info_request", {})

    async def answers(self, timeout_seconds: float) -> bool:
        """Return whether the kernel answers within `timeout_seconds`; an open question is not asked again."""
        if self.asked_at is None:
            self.ask()
        try:
            await asyncio.wait_for(self._answered.wait(), timeout_seconds)
        except asyncio.TimeoutError:
            return False
        return True

    def _note_answer(self) -> None:
        self.asked_at = None
        self.answers_on_control = True
        self._answered.set()

    def _dispatch(self, message: KernelMessage) -> None:
        # The statuses of our own questions on iopub stop here: they say nothing about the session's code.
        if message.parent_id == self._question:
            if message.channel == "control":
                self._note_answer()
        elif message.parent_id in self._turns:
            if message.channel == "shell":
                self._end_turn_wait(message.parent_id, True)
        elif not self._connection_check.take_in(message):
            self._on_message(message)

    async def check(self, timeout_seconds: float) -> None:
        """Wait until the kernel answers requests and its output arrives; see `ConnectionCheck.check`."""
        await self._connection_check.check(timeout_seconds)

    @property
    def language(self) -> str:
        """The language that the kernel reports; empty until it has answered on the shell channel."""
        return self._connection_check.language

    async def has_turn(self) -> bool:
        """Wait until the kernel has done all earlier requests of all clients; False if the connection was closed.

        The shell channel is a queue that all clients share: its answer to a question comes when all that stands
        before the question is done.
        """
        asked = self.send("shell", "kernel_info_request", {})
        answered: asyncio.Future[bool] = self._loop.create_future()
        self._turns[asked] = answered
        try:
            return await answered
        finally:
            self._turns.pop(asked, None)

    def _end_turn_wait(self, asked: str, answer: bool) -> None:
        if not self._turns[asked].done():
            self._turns[asked].set_result(answer)

    def close(self) -> None:
        """Close the channels; what was not read yet is dropped."""
        for asked in self._turns:
            self._end_turn_wait(asked, False)
        for channel in self._channels.values():
            channel.close()
        self._memory.close()


def _next_parts(reading: Iterator[KernelMessage]) -> list[KernelMessage]:
    return list(islice(reading, _PIECES_PER_TURN))
