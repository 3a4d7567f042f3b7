"""Our own connection to a kernel: four ZeroMQ sockets read on the event loop.

Why not jupyter_client's client: its SUB socket has a high-water mark, at which ZeroMQ drops output without a word
(four fifths of 20,000 messages when the reader pauses), and its sockets cost a future for every message. Here the
mark is off, so that what the kernel published waits in memory until it is read, and one callback drains a socket. Only
a kernel that has agreed to wait instead of dropping (`flow`) is subscribed to with a mark.

A new subscription is proven before it is used. A kernel that announces subscriptions (``iopub_welcome``, JEP 65)
proves it by itself; with any other, a request whose ``status`` arrives on iopub does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import zmq

from ..errors import KernelStartFailed, KernelStartTimeout
from ..wire.flow import MAX_WAITING_MESSAGES, agrees_to_wait, keeping_request, waiting_request
from ..wire.kernel import DELIMITER, FrameCodec, KernelMessage
from ..wire.large import LARGE_BYTES, read_large
from .exhaustion import exhausted, out_of_resources, require_descriptor
from .resources import EngineResources

_CHANNELS = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}
_MESSAGES_PER_TURN = 32
_TURN_SECONDS = 0.002
_FEW_MESSAGES = 8  # a run that prints a little has no more at a time
_PIECES_PER_TURN = 4
_PROBE_AGAIN_SECONDS = 0.1
_ASK_AGAIN_SECONDS = 2.0


class KernelConnection:
    """Sockets to one kernel process.

    Parameters
    ----------
    resources : EngineResources
        Where the sockets are made.
    info : mapping
        Addresses and key, as in a connection file.
    on_message : callable
        Gets every message that is not an answer to a probe.
    can_wait : bool
        Whether it is a kernel that can be made to wait when it writes faster than we read.
    may_be_busy : bool
        Whether it may be running something already, so that the shell channel does not answer.
    """

    def __init__(
        self,
        resources: EngineResources,
        info: Mapping[str, Any],
        on_message: Callable[[KernelMessage], None],
        log: logging.Logger | logging.LoggerAdapter[Any],
        *,
        can_wait: bool = False,
        waits: bool = False,
        may_be_busy: bool = False,
    ) -> None:
        self._info = info
        self._can_wait = can_wait and not waits
        self._probe_channels = ("control", "shell") if may_be_busy else ("shell",)
        self._loop = asyncio.get_running_loop()
        self._resources = resources
        self._reading: set[str] = set()
        self._on_message = on_message
        self._log = log
        key = info.get("key", b"")
        self._codec = FrameCodec(
            key.encode() if isinstance(key, str) else key,
            info.get("signature_scheme", "hmac-sha256"),
            uuid.uuid4().hex,
        )
        self._probes: set[str] = set()
        self._turns: dict[str, asyncio.Future[bool]] = {}
        self._agreements: set[str] = set()
        self._agreed = asyncio.Event()
        self._waits = waits
        self._replied = asyncio.Event()
        self._subscribed = asyncio.Event()
        self._question = ""
        self._answered = asyncio.Event()
        self.asked_at: float | None = None
        self.answers_on_control = False
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        try:
            for channel in _CHANNELS:
                if channel != "iopub":
                    self._connect(channel)
            if not self._can_wait:
                self._connect_iopub()
        except zmq.ZMQError:
            self.close()
            raise

    def _connect(self, channel: str, max_waiting_messages: int = 0) -> None:
        info = self._info
        socket = self._sockets[channel] = self._resources.context.socket(_CHANNELS[channel])
        self._loop.add_reader(socket.FD, self._drain, channel)
        socket.linger = 0
        socket.rcvhwm = max_waiting_messages
        socket.reconnect_ivl = 10
        socket.reconnect_ivl_max = 500
        if info.get("curve_publickey"):
            socket.curve_publickey = socket.curve_serverkey = _as_bytes(info["curve_publickey"])
            socket.curve_secretkey = _as_bytes(info["curve_secretkey"])
        if channel == "iopub":
            socket.subscribe(b"")
        else:
            # The kernel sends input requests to the identity that sent the execute request.
            socket.identity = self._codec.session_id.encode()
        between = "-" if info["transport"] == "ipc" else ":"
        address = f"{info['ip']}{between}{info[f'{channel}_port']}"
        if info["transport"] == "ipc":
            _refuse_what_is_no_socket(address)
        socket.connect(f"{info['transport']}://{address}")
        self._loop.call_soon(self._drain, channel)  # ZeroMQ promises a signal only for what comes after a look

    def _connect_iopub(self) -> None:
        self._connect("iopub", MAX_WAITING_MESSAGES if self._waits else 0)

    def send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> str:
        """Send a message and return its id."""
        msg_id, frames = self._codec.encode(msg_type, content)
        self._sockets[channel].send_multipart(frames)
        # Sending can use up the socket's edge-triggered readiness, so look for input once more.
        self._loop.call_soon(self._drain, channel)
        return msg_id

    def _drain(self, channel: str) -> None:
        socket = self._sockets[channel]
        if socket.closed or channel in self._reading:
            return
        give_way_at = time.thread_time() + _TURN_SECONDS  # of work: nobody gains by a rest after a wait
        for number in range(_MESSAGES_PER_TURN):
            try:
                head, content = _receive(socket)
            except zmq.Again:
                if number < _FEW_MESSAGES:
                    return
                break
            if len(content) > LARGE_BYTES:
                self._read_apart(channel, head, content)
                return
            try:
                self._take(channel, [*head, bytes(content)])
            except Exception:  # whatever one message does, those behind it must be read: nothing wakes us again
                self._log.exception("a message on %s could not be taken in", channel)
            if socket.closed:
                return
            if time.thread_time() > give_way_at:
                break
        self._pause(channel)
        self._resources.turns.take(partial(self._go_on, channel))  # others first

    def _pause(self, channel: str) -> None:
        """Read no more on this channel until `_go_on`."""
        self._reading.add(channel)
        # It stays ready as long as nobody reads it, and would wake the loop all the time.
        self._loop.remove_reader(self._sockets[channel].FD)

    def _go_on(self, channel: str) -> None:
        socket = self._sockets[channel]
        if not socket.closed:
            self._reading.discard(channel)
            self._loop.add_reader(socket.FD, self._drain, channel)
            self._drain(channel)

    # --- large messages, in a worker thread; what comes behind them on the channel waits ---

    @property
    def reading(self) -> bool:
        """Whether something has come that is still to be read."""
        return bool(self._reading)

    def _read_apart(self, channel: str, head: list[bytes], content: bytes | memoryview) -> None:
        self._pause(channel)
        work = self._loop.run_in_executor(
            self._resources.workers,
            read_large,
            self._codec,
            channel,
            head,
            memoryview(content),
            self._resources.max_value_bytes,
        )
        work.add_done_callback(partial(self._read, channel))

    def _read(self, channel: str, work: asyncio.Future[list[KernelMessage]]) -> None:
        messages: deque[KernelMessage] = deque()
        try:
            messages.extend(work.result())
        except (ValueError, RecursionError, asyncio.CancelledError) as error:
            self._log.warning("ignored a large message on %s: %s", channel, error)
        self._hand_over(channel, messages)

    def _hand_over(self, channel: str, messages: deque[KernelMessage]) -> None:
        if self._sockets[channel].closed:
            return
        for _ in range(min(len(messages), _PIECES_PER_TURN)):
            self._dispatch(channel, messages.popleft())
        if messages:  # others first
            self._loop.call_soon(self._resources.when_few_wait, partial(self._hand_over, channel, messages))
        else:  # the next large one is not read before this one is where it belongs
            self._resources.when_few_wait(partial(self._go_on, channel))

    def catch_up(self) -> None:
        """Take in what has arrived and was not read yet."""
        for channel in self._sockets:
            self._drain(channel)

    # --- the kernel's pulse, on the control channel ---

    def look(self) -> None:
        """Take in answers that have arrived and were not read yet."""
        self._drain("control")

    def ask(self) -> None:
        """Ask the kernel for a sign of life; `asked_at` is None again when it has answered."""
        self._answered.clear()
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

    def _take(self, channel: str, frames: list[bytes]) -> None:
        try:
            message = self._codec.decode(channel, frames)
        except (ValueError, RecursionError) as error:
            self._log.warning("ignored a message on %s: %s", channel, error)
            return
        self._dispatch(channel, message)

    def _dispatch(self, channel: str, message: KernelMessage) -> None:
        if message.msg_type == "iopub_welcome":
            self._subscribed.set()
        elif message.parent_id == self._question:
            if channel == "control":
                self._note_answer()
        elif message.parent_id in self._agreements:
            if message.msg_type == "execute_reply":
                self._waits = agrees_to_wait(message.content)
                self._agreed.set()
        elif message.parent_id in self._probes:
            (self._subscribed if channel == "iopub" else self._replied).set()
        elif message.parent_id in self._turns:
            if channel == "shell":
                self._end_turn_wait(message.parent_id, True)
        else:
            self._on_message(message)

    async def prove(self, timeout_seconds: float) -> None:
        """Wait until the kernel answers requests and our subscription is seen to work.

        Raises
        ------
        KernelStartTimeout
        OutOfResources
            If the kernel does not answer and we have no descriptor left to reach it with: ZeroMQ, which connects by
            itself, tells nobody.
        """
        try:
            await asyncio.wait_for(self._prove(), timeout_seconds)
        except asyncio.TimeoutError:
            raise KernelStartTimeout(f"the kernel did not answer within {timeout_seconds:g} s of its start") from None

    async def _prove(self) -> None:
        self.ask()  # not waited for: it shows whether the kernel answers there at all
        self._probe()
        await self._ask_until(self._replied, self._probe, _ASK_AGAIN_SECONDS)
        if self._can_wait:
            # Before the subscription: the mark of a socket in use cannot be changed without a loss.
            self._ask_to_wait()
            await self._ask_until(self._agreed, self._ask_to_wait, _ASK_AGAIN_SECONDS)
            try:
                self._connect_iopub()
            except zmq.ZMQError as error:
                raise (exhausted(error) if out_of_resources(error) else error) from error
        if not self._subscribed.is_set():
            self._probe()
            await self._ask_until(self._subscribed, self._probe, _PROBE_AGAIN_SECONDS)
        if self._can_wait and self._waits:
            # Once more: how much a kernel keeps unsent is a property of the connections it has by then. Waited for,
            # since ZeroMQ crashes where a connection is closed, such as the host's own, while its marks are changed.
            self._agreed.clear()
            self._keep_all()
            await self._ask_until(self._agreed, self._keep_all, _ASK_AGAIN_SECONDS)

    @staticmethod
    async def _ask_until(answered: asyncio.Event, ask: Callable[[], None], patience_seconds: float) -> None:
        """Wait for the answer to what was asked; a request can be lost, with the connection that it was sent on."""
        while not answered.is_set():
            try:
                await asyncio.wait_for(answered.wait(), patience_seconds)
            except asyncio.TimeoutError:
                require_descriptor()
                ask()

    def _probe(self) -> None:
        self._probes.update(self.send(channel, "kernel_info_request", {}) for channel in self._probe_channels)

    async def has_turn(self) -> bool:
        """Wait until the kernel has done what it was asked before, by whomever; False if the connection was closed.

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

    def _ask_to_wait(self) -> None:
        self._agreements.add(self.send("shell", "execute_request", waiting_request()))

    def _keep_all(self) -> None:
        self._agreements.add(self.send("shell", "execute_request", keeping_request()))

    def close(self) -> None:
        """Close the sockets; what was not read yet is dropped."""
        for asked in self._turns:
            self._end_turn_wait(asked, False)
        for socket in self._sockets.values():
            if not socket.closed:
                self._loop.remove_reader(socket.FD)
                socket.close()


def _receive(socket: zmq.Socket[bytes]) -> tuple[list[bytes], bytes | memoryview]:
    """Return a message's frames before its content, and the content, which is not copied if it is large.

    Raises
    ------
    zmq.Again
        If there is none.
    """
    frame = socket.recv(zmq.NOBLOCK, copy=False)
    head = [frame.bytes]
    content_at = -1
    content: bytes | memoryview = b""
    while frame.more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        if content_at < 0 and head[-1] == DELIMITER:
            content_at = len(head) + 4
        if len(head) != content_at:
            head.append(frame.bytes)
            continue
        content = frame.buffer if len(frame) > LARGE_BYTES else frame.bytes
        while frame.more:
            frame = socket.recv(zmq.NOBLOCK, copy=False)  # binary buffers, of which output has none
        break
    return head, content


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _refuse_what_is_no_socket(path: str) -> None:
    """Refuse an address at which a kernel has put something else, such as a link to the socket of another one.

    Raises
    ------
    KernelStartFailed
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:  # the kernel has not made it yet
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise KernelStartFailed(f"what the kernel has at {os.path.basename(path)!r} is no socket")
