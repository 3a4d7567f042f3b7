"""Driver of the client's steps on embedded kernels: requests of the kernels API, and ZeroMQ channels as its WebSocket.

A kernel that writes faster than it is read is made to wait, as by the server's engine; see
`protocol.kernel_preparation`. One that does not wait drops what its queue and the one here cannot take.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpecManager

from ..client.api.retries import NO_RETRY
from ..client.api.steps import Connect, Disconnect, Failure, ReceiveMessage, Reply, Request, SendMessage, Socket, Step
from ..client.jupyter.standard_session import open_standard_session
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..client.sync.standard_session import StandardExecSession
from ..errors import ConnectionFailed, KernelStartFailed, KernelStartTimeout
from ..protocol.kernel_messages import WEBSOCKET_PROTOCOL, FrameCodec, KernelMessage, encode_websocket, new_header
from ..protocol.kernel_preparation import (
    DEFAULT_NAMES,
    MAX_WAITING_MESSAGES,
    agrees_to_wait,
    default_expressions,
    inherited_environment,
    keeping_request,
    kernel_environment,
    unattended_request,
    waiting_request,
)
from ..protocol.strict_json import dump_bytes
from ..system.resources import probe_descriptors
from .embedded_kernel import EmbeddedKernel, start_failure

_REQUESTS = ("shell", "stdin")  # interrupts and shutdowns go by the kernel's manager
# ZeroMQ's own default. A kernel decides only that fewer wait.
_MAX_WAITING_MESSAGES = 1000
_MAX_FRAME_BYTES = 128 * 1024 * 1024
_LOOK_SECONDS = 0.1  # so often the process is asked whether it lives: ZeroMQ does not report its end
_ASK_AGAIN_SECONDS = 2.0
_START_SECONDS = 60.0
_OVER = Failure(True, "the kernel's process has ended, or the connection was closed")


class Channels:
    """Sockets to one kernel process, subscribed to its output.

    Closing them ends each wait for a message. All else is for one thread at a time.

    Raises
    ------
    KernelStartFailed, KernelStartTimeout
        If the process ends before it answers, or does not answer.
    """

    def __init__(self, kernel: EmbeddedKernel) -> None:
        self._kernel = kernel
        self._generation = kernel.generation
        self._info = kernel.connection_info()
        key = self._info.get("key", b"")
        self._codec = FrameCodec(
            key.encode() if isinstance(key, str) else key,
            self._info.get("signature_scheme", "hmac-sha256"),
            uuid.uuid4().hex,
        )
        self._using = threading.Lock()
        self._closed = False
        self._death_seen = self._death_told = False
        self._read: deque[tuple[str, list[bytes]]] = deque()
        # Wakes the thread that polls: a ZeroMQ socket must not be closed while another thread uses it.
        self._wake, self._woken = socket.socketpair()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._poller.register(self._woken, zmq.POLLIN)
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._open()
            undo.pop_all()

    # --- opening ---

    def _open(self) -> None:
        for channel in _REQUESTS:
            self._connect(channel)
        give_up_at = time.monotonic() + _START_SECONDS
        request = waiting_request(draws_plots=None) if self._kernel.is_python else None
        reply = self._ask("shell", _ASK_AGAIN_SECONDS, give_up_at, request)
        # Before the subscription: the mark of a socket in use cannot be changed without a loss.
        waits = agrees_to_wait(reply.content)
        self._connect("iopub", MAX_WAITING_MESSAGES if waits else _MAX_WAITING_MESSAGES)
        # The kernel's answer is lost if the subscription has not reached it yet, so the question is repeated.
        self._ask("iopub", _LOOK_SECONDS, give_up_at)
        if waits:  # so it is an IPython kernel
            request = unattended_request(default_expressions(draws_plots=True))
            self._sockets["shell"].send_multipart(self._codec.encode("execute_request", request)[1])
            # Once more: how much a kernel keeps unsent is a property of the connections that it has by then.
            self._ask("shell", _ASK_AGAIN_SECONDS, give_up_at, keeping_request())

    def _connect(self, channel: str, max_waiting_messages: int = _MAX_WAITING_MESSAGES) -> None:
        made = self._sockets[channel] = self._context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
        made.linger = 0  # or `term` would wait for a dead kernel to read the rest
        made.rcvhwm = max_waiting_messages
        made.maxmsgsize = _MAX_FRAME_BYTES
        made.reconnect_ivl, made.reconnect_ivl_max = 10, 500  # in ms: the kernel binds its sockets after this
        if self._info.get("curve_publickey"):
            made.curve_publickey = made.curve_serverkey = _as_bytes(self._info["curve_publickey"])
            made.curve_secretkey = _as_bytes(self._info["curve_secretkey"])
        if channel == "iopub":
            made.subscribe(b"")
        else:  # the kernel sends input requests to the identity that sent the execute request
            made.identity = self._codec.session_id.encode()
        made.connect(_address(self._info, channel))
        self._poller.register(made, zmq.POLLIN)

    def _ask(
        self, channel: str, again_seconds: float, give_up_at: float, request: Mapping[str, Any] | None = None
    ) -> KernelMessage:
        """Send a request to execute, or for information, until a message comes on a channel; return that message."""
        kind = "kernel_info_request" if request is None else "execute_request"
        while True:
            _, frames = self._codec.encode(kind, request or {})
            self._sockets["shell"].send_multipart(frames)
            ask_again_at = time.monotonic() + again_seconds
            while time.monotonic() < ask_again_at:
                for name, message in self._waiting(ask_again_at - time.monotonic()):
                    if name == channel:
                        # A kernel can send anything: what is not a proper message is skipped.
                        with contextlib.suppress(ValueError):
                            return self._codec.decode(name, message)
            if not self._kernel.alive:
                said = self._kernel.last_words
                raise KernelStartFailed("the kernel ended before it answered" + (f":\n{said}" if said else ""))
            if time.monotonic() > give_up_at:
                raise KernelStartTimeout(f"the kernel did not answer within {_START_SECONDS:g} s of its start")

    def _waiting(self, seconds: float) -> list[tuple[str, list[bytes]]]:
        """Return one message of each channel on which there is any, waiting for the first."""
        ready = dict(self._poller.poll(max(0, int(min(seconds, _LOOK_SECONDS) * 1000))))
        return [(name, each.recv_multipart()) for name, each in self._sockets.items() if each in ready]

    # --- what a WebSocket does ---

    def send(self, data: bytes) -> Failure | None:
        """Send a message of the v1 sub-protocol."""
        channel, frames = self._codec.frames_of(data)
        with self._using:
            if self._is_over:
                return _OVER
            self._sockets[channel].send_multipart(frames)
        return None

    def receive(self, seconds: float) -> bytes | Failure | None:
        """Return the next message; None when the time is up.

        Once the process has ended and all that it sent has been read, there is one last message as a server sends it,
        with the exit code.
        """
        give_up_at = time.monotonic() + seconds
        with self._using:
            while not self._is_over:
                if not self._read:
                    self._read.extend(self._waiting(give_up_at - time.monotonic()))
                while self._read:
                    channel, frames = self._read.popleft()
                    with contextlib.suppress(ValueError):
                        return self._codec.websocket_of(channel, frames)
                if self._closed:
                    break
                if self._has_died():
                    return self._last_message()
                if time.monotonic() >= give_up_at:
                    return None
        return _OVER

    @property
    def _is_over(self) -> bool:
        return self._closed or self._death_told or self._generation != self._kernel.generation

    def _has_died(self) -> bool:
        """True if the process had ended when nothing more came from it for a while."""
        # At the second look only: what the kernel sent before its end may still be on its way.
        seen, self._death_seen = self._death_seen, not self._kernel.alive
        return seen

    def _last_message(self) -> bytes:
        self._death_told = True
        header = new_header("status", self._codec.session_id)
        content = {"execution_state": "dead", "exit_code": self._kernel.exit_code}
        message = encode_websocket("iopub", header, content, binary=True)
        assert isinstance(message, bytes)
        return message

    def close(self) -> None:
        """Close the sockets, which ends each wait for a message."""
        if not self._closed:
            self._closed = True
            self._wake.send(b"-")
        with self._using:
            for each in self._sockets.values():
                each.close()
            self._context.term()
            self._wake.close()
            self._woken.close()


def _address(info: Mapping[str, Any], channel: str) -> str:
    if info["transport"] != "ipc":
        return f"{info['transport']}://{info['ip']}:{info[f'{channel}_port']}"
    path = f"{info['ip']}-{info[f'{channel}_port']}"
    # A kernel in a sandbox may have put something else there, such as a link to the socket of another one.
    with contextlib.suppress(FileNotFoundError):  # the kernel has not made it yet
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise KernelStartFailed(f"what the kernel has at {os.path.basename(path)!r} is no socket")
    return f"ipc://{path}"


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


# Descriptors of a kernel and its connections, at most. Without them, libzmq (4.3.5, `epoll.cpp`) ends the program.
_DESCRIPTORS_PER_KERNEL = 32
_MAX_OUTPUT_BYTES = 32 * 1024 * 1024


class EmbeddedDriver(SyncDriver):
    """A driver whose server is in this process, and knows nothing but kernels.

    Parameters
    ----------
    env : mapping
        Environment of the kernels, beside what a program needs in order to run at all.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(JupyterConnectionInfo("localhost", False))  # to which nothing is ever sent
        self._env = kernel_environment(inherited_environment(os.environ, DEFAULT_NAMES), env, caller_names=["*"])
        self._kernels: dict[str, EmbeddedKernel] = {}
        self._pid = os.getpid()

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ConnectionFailed(
                f"the kernel belongs to the process that has started it ({self._pid}), which has forked this one; make "
                "another executor here"
            )
        super()._check_open()

    def open_session(self, kernel_name: str, *, max_output_bytes: int = _MAX_OUTPUT_BYTES) -> StandardExecSession:
        """Start a kernel and return a session on it.

        Raises
        ------
        KernelSpecNotFound, KernelStartFailed, KernelStartTimeout, OutOfResources
        """
        # A kernel that ended while nothing ran is noticed before the next run, which gets a fresh one.
        operation = open_standard_session(kernel_name, None, NO_RETRY, max_output_bytes, trusted_seconds=0.0)
        return StandardExecSession(self, self.perform(operation))

    def close(self) -> None:
        """End all kernels."""
        super().close()
        shut_down(self._kernels)

    @property
    def kernels(self) -> dict[str, EmbeddedKernel]:
        """The kernels that there are, by id."""
        return self._kernels

    # --- the kernels API ---

    def _request(self, request: Request) -> Reply | Failure:
        match (request.method, *request.path.split("/")[1:]):
            case ("GET", "kernelspecs"):
                specs = KernelSpecManager().get_all_specs()
                return _reply(200, {"default": "python3", "kernelspecs": specs})
            case ("POST", "kernels"):
                with _system_failures_named():
                    kernel = EmbeddedKernel(request.json["name"], self._env)
                self._kernels[kernel.kernel_id] = kernel
                return _reply(201, {"id": kernel.kernel_id})
            case ("GET", "kernels", kernel_id) if kernel_id in self._kernels:
                return _reply(200, {"id": kernel_id})
            case ("DELETE", "kernels", kernel_id) if kernel_id in self._kernels:
                self._kernels.pop(kernel_id).shutdown()
                return _reply(204)
            case ("POST", "kernels", kernel_id, "interrupt") if kernel_id in self._kernels:
                self._kernels[kernel_id].interrupt()
                return _reply(204)
            case ("POST", "kernels", kernel_id, "restart") if kernel_id in self._kernels:
                self._kernels[kernel_id].restart()
                return _reply(200, {"id": kernel_id})
        return _reply(404, {"message": "there is no such kernel"})

    # --- its WebSocket ---

    def _websocket(self, step: Step) -> Any:
        if isinstance(step, Connect):
            kernel = self._kernels.get(step.path.split("/")[2])
            if kernel is None:
                return Failure(False, "there is no such kernel")
            kernel.revive()
            with _system_failures_named():
                channels = kernel.connection = Channels(kernel)
            return Socket(WEBSOCKET_PROTOCOL, channels)
        if isinstance(step, SendMessage):
            assert isinstance(step.data, bytes)
            return step.socket.handle.send(step.data)
        if isinstance(step, ReceiveMessage):
            return step.socket.handle.receive(step.timeout_seconds)
        assert isinstance(step, Disconnect)
        return step.socket.handle.close()


def shut_down(kernels: dict[str, EmbeddedKernel]) -> None:
    """End kernels at once, and forget them."""
    while kernels:
        kernels.popitem()[1].shutdown(now=True)


@contextmanager
def _system_failures_named() -> Iterator[None]:
    """Raise what the system or ZeroMQ refuses as one of this package's errors."""
    try:
        probe_descriptors(_DESCRIPTORS_PER_KERNEL)
        yield
    except (OSError, zmq.ZMQError) as error:
        raise start_failure(error) from error


def _reply(status: int, body: Any = None) -> Reply:
    return Reply(status, {}, b"" if body is None else dump_bytes(body))
