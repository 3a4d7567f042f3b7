"""WebSocket to a kernel of a server without ``exec/v1``, with reconnects and a check that the kernel is there.

Jupyter replays the messages that a client has missed when it returns with the same session id, so reconnects keep the
id. A server may keep the WebSocket of a kernel that it has removed, and a network may keep one that leads nowhere. If
no message comes, the kernels API is asked.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Mapping
from typing import Any

from ...errors import ConnectionLost, KernelStartTimeout, NotFound, SessionEnded, UnexpectedAnswer
from ...models import StateLoss
from ...protocol.kernel_messages import (
    WEBSOCKET_PROTOCOL,
    KernelMessage,
    Sender,
    decode_websocket,
    encode_websocket,
    language_told,
    new_header,
)
from ...protocol.kernel_preparation import default_expressions, unattended_request
from ...protocol.languages import normalize_language
from ...protocol.late_output import LateOutputBuffer
from ..api.request_exchange import segment
from ..api.retries import RetryBudget
from ..api.steps import Connect, Disconnect, Failure, Operation, Pause, ReceiveMessage, SendMessage, Socket
from ..fork_safety import keep_for_parent, renew_after_fork
from .kernels_api import KernelsApi

# A kernel that has just been started may take this long until it answers.
_CONNECT_SECONDS = 60.0
# A connection that was used within this time is not checked before code is sent, which saves a round trip.
_TRUSTED_SECONDS = 20.0
# A status that is sent before the server has subscribed to the kernel's output is lost, so the question is repeated.
_PROBE_SECONDS = 2.0
# No step waits for another operation, so the end of a restart is polled.
_RESTART_LOOK_SECONDS = 0.05
_CLOSED = Failure(True, "the connection was closed")


def loss_by(exit_code: int | None) -> StateLoss:
    """Return how a kernel ended, by the exit code of its process; a negative one is that of a signal."""
    if exit_code is None:
        return StateLoss("the kernel ended by itself")
    if exit_code >= 0:
        return StateLoss(f"the kernel exited with code {exit_code}", kernel_exit_code=exit_code)
    known = {number.value: number.name for number in signal.Signals}
    name = known.get(-exit_code, f"signal {-exit_code}")
    return StateLoss(f"the kernel was ended by {name}", kernel_signal=name)


def tells_death(message: KernelMessage) -> bool:
    """Return whether a message is the server's report that the kernel died."""
    return message.msg_type == "status" and message.content.get("execution_state") in ("restarting", "dead")


class StandardConnection:
    """A kernel and the WebSocket to it.

    Attributes
    ----------
    ended : str or None
        Why there is nothing to connect to any more.
    restarts_under_way : int
        While there are any, the kernel that answers may be the old one.
    language : str
        The language that the kernel says it runs; known once it has answered.
    lost : StateLoss or None
        How the kernel ended while nothing ran, where another process was found in its place.
    late_output : LateOutputBuffer
        Output of requests that have ended.
    """

    def __init__(self, api: KernelsApi, kernel_id: str, trusted_seconds: float | None = None) -> None:
        self.api = api
        self.kernel_id = kernel_id
        self.ended: str | None = None
        self.restarts_under_way = 0
        self.language = ""
        self._session_id = uuid.uuid4().hex
        self._socket: Socket | None = None
        self._was_open = self._checked = False
        self._last_used = 0.0
        self.lost: StateLoss | None = None
        self.late_output = LateOutputBuffer()
        self._process: Sender | None = None
        self._trusted_seconds = _TRUSTED_SECONDS if trusted_seconds is None else trusted_seconds
        # Kernels of this process are prepared when their channels are opened.
        self._prepares_kernels = trusted_seconds is None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Take another session id than the parent's: a server cuts the older connection of a session id."""
        keep_for_parent(self._socket)  # closing it here would end the parent's reading
        self._session_id, self._socket = uuid.uuid4().hex, None
        self._checked = False

    def connect(self) -> Operation[None]:
        """Open the WebSocket, if it is not open, and check that requests and output both get through."""
        failure: Failure | None = None
        for _ in range(2):  # the first time, it may have been cut while it was not used
            while self.restarts_under_way:
                yield Pause(_RESTART_LOOK_SECONDS)
            self.check_alive()
            if self._socket is None:
                yield from self.open()
            if self._checked and time.monotonic() - self._last_used < self._trusted_seconds:
                return
            failure = yield from self._check()
            if failure is None:
                return
            yield from self.disconnect()
        assert failure is not None
        raise ConnectionLost(f"the kernel's WebSocket does not stay open: {failure.message}")

    def open(self) -> Operation[None]:
        """Open the WebSocket, under the same session id as before."""
        # A proxy that lets no WebSocket through at all is no outage.
        budget = RetryBudget(self.api.retry, outages=self._was_open)
        while True:
            path = f"api/kernels/{segment(self.kernel_id)}/channels?session_id={self._session_id}"
            socket: Socket | Failure = yield Connect(path, (WEBSOCKET_PROTOCOL,), _CONNECT_SECONDS)
            if isinstance(socket, Socket):
                self._socket, self._checked, self._was_open = socket, False, True
                return
            # The handshake's error does not say whether the kernel is gone; the kernels API does.
            yield from self.look()
            pause = budget.pause(outage=True)
            if pause is None:
                raise ConnectionLost(f"the kernel's WebSocket cannot be opened: {socket.message}")
            yield pause

    def disconnect(self) -> Operation[None]:
        """Close the WebSocket, which ends each wait for a message at once."""
        socket, self._socket, self._checked = self._socket, None, False
        if socket is not None:
            yield Disconnect(socket)

    def distrust(self) -> None:
        """Have the connection checked anew before its next use: there is another kernel process behind it."""
        self._checked = False
        self._process = self.lost = None

    def note_restart(self, exit_code: object = None) -> None:
        """Note that the server has started another process in the place of one that ended by itself."""
        self._process = None
        self.lost = loss_by(exit_code if isinstance(exit_code, int) else None)

    def note_sender(self, message: KernelMessage) -> None:
        """Note which process has answered a request, and whether it replaced the one before."""
        sender, known = message.sender, self._process
        if sender is None or sender == known:
            return
        self._process = sender
        # Each kernel that is started has its own session id; a child that it forks shares the id, and is no new kernel.
        if known is not None and known.session_id != sender.session_id and self.lost is None:
            self.lost = StateLoss("the kernel was replaced by another one")

    def send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> Operation[str | Failure]:
        """Send a message and return its id."""
        socket = self._socket  # a restart or the session's end may take it away at any time
        if socket is None:
            return _CLOSED
        header = new_header(msg_type, self._session_id)
        binary = socket.subprotocol == WEBSOCKET_PROTOCOL
        failure: Failure | None = yield SendMessage(socket, encode_websocket(channel, header, content, binary=binary))
        self._last_used = time.monotonic()
        return header["msg_id"] if failure is None else failure

    def receive(self, seconds: float) -> Operation[KernelMessage | Failure | None]:
        """Receive a message; None when the time is up."""
        socket = self._socket
        if socket is None:
            return _CLOSED
        # Zero would mean no timeout at all to aiohttp, and a non-blocking socket to websocket-client.
        data: str | bytes | Failure | None = yield ReceiveMessage(socket, max(seconds, 0.001))
        if data is None or isinstance(data, Failure):
            return data
        self._last_used = time.monotonic()
        try:
            return decode_websocket(data)
        except ValueError:
            # A hostile kernel must not end the run by a broken message; one without a parent belongs to no run.
            return KernelMessage("", "malformed", None, {})

    def probe(self) -> Operation[str | Failure]:
        """Ask something that a kernel answers in its turn, after all that it was asked before."""
        return (yield from self.send("shell", "kernel_info_request", {}))

    def _check(self) -> Operation[Failure | None]:
        """Wait until a request is answered and its status arrives on iopub."""
        give_up_at = time.monotonic() + _CONNECT_SECONDS
        probes: set[str] = set()
        replied = subscribed = False
        known = bool(self._last_used)
        while not (replied and subscribed):
            if time.monotonic() > give_up_at:
                raise KernelStartTimeout(f"the kernel did not answer within {_CONNECT_SECONDS:g} s")
            # A server may keep the WebSocket of a kernel that it has removed, and then nothing ever comes.
            if known:
                yield from self.look()
            known = True
            sent = yield from self.probe()
            if isinstance(sent, Failure):
                return sent
            probes.add(sent)
            ask_again_at = time.monotonic() + _PROBE_SECONDS
            while not (replied and subscribed) and time.monotonic() < ask_again_at:
                message = yield from self.receive(ask_again_at - time.monotonic())
                if isinstance(message, Failure):
                    return message
                if message is None:
                    continue
                if message.parent_id in probes:
                    subscribed = subscribed or message.channel == "iopub"
                    if message.channel == "shell":
                        replied = True
                        self.language = language_told(message.content)
                        self.note_sender(message)
                elif tells_death(message):
                    self.note_restart(message.content.get("exit_code"))
                else:
                    self.late_output.keep(message)
        self._checked = True
        # The kernel handles requests in turn, so this one is done before the code, and its reply is not awaited.
        if self._prepares_kernels and normalize_language(self.language) == "python":
            # Also where the kernel is prepared already: a server may have started another one meanwhile.
            request = unattended_request(default_expressions(draws_plots=True))
            sent = yield from self.send("shell", "execute_request", request)
            return sent if isinstance(sent, Failure) else None
        return None

    # --- state of the kernel ---

    def check_alive(self) -> None:
        """Raise `SessionEnded` if there is no kernel any more."""
        if self.ended is not None:
            raise SessionEnded(f"{self.ended}; create a new session")

    def look(self) -> Operation[str]:
        """Return the kernel's state as the server knows it; raises `SessionEnded` if it is gone for good."""
        state = yield from self.api.state(self.kernel_id)
        if state == "dead":
            self.ended = self.ended or "the server has no such kernel any more"
        self.check_alive()
        return state

    def control(self, call: Operation[None]) -> Operation[None]:
        """Perform an operation that needs a kernel; raise `SessionEnded` if there is none."""
        self.check_alive()
        try:
            yield from call
        except (NotFound, UnexpectedAnswer):  # a server may answer 404, or fail over a kernel that is not there
            yield from self.look()
            raise
