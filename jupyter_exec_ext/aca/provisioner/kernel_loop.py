"""Event loop in a thread for all ACA kernels of a process, and the ZeroMQ sockets that kernels have on it.

Kernels do not use the loop of their starter: a client that blocks (`BlockingKernelClient`, nbclient without a loop)
would wait for a kernel that waits for the client. The thread starts with the first kernel. It ends after the last
kernel and its background work, which is to end sessions on Azure.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Hashable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import zmq
from jupyter_client.session import Session

from ...client.fork_safety import ProcessLock

T = TypeVar("T")
_MAX_SOCKETS = 65_535  # five for each kernel, where ZeroMQ's default is 1,023 in all
# Time limit of background work. Sessions that are not ended cost money until their pool ends them.
_BACKGROUND_SECONDS = 60.0
# At exit, wait this long for each loop, so that its sessions are deleted.
_EXIT_SECONDS = 10.0

_log = logging.getLogger(__name__)


class KernelLoop:
    """An event loop in a thread, with objects that kernels share."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.max_sockets = _MAX_SOCKETS
        self.users = 0
        self._shared: dict[Hashable, Any] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="aca-kernels", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            with self._closing:  # cancels work that came meanwhile, and refuses more: nothing would finish it
                self._loop.run_until_complete(_cancel_all())
                self._loop.close()
            self.context.term()  # waits while closed sockets still send

    async def _end(self) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=_BACKGROUND_SECONDS)
        await _cancel_all()
        for shared in self._shared.values():
            await shared.aclose()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread; the end of the thread cancels it.

        Raises
        ------
        RuntimeError
            If the thread has ended.
        """
        with self._closing:
            if self._loop.is_closed():
                coroutine.close()
                raise RuntimeError("the loop of ACA kernels has ended")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """End the thread after its background work."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        """Wait for the end of the thread, for at most `_EXIT_SECONDS`."""
        self._thread.join(_EXIT_SECONDS)

    # --- called in the thread ---

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the shared object of kernels with the same key, made by the first of them."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def delete_in_background(self, deletion: Coroutine[Any, Any, None]) -> None:
        """Run the deletion of a session, which no caller awaits; log its failure."""
        task = self._loop.create_task(deletion)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        problem = "it took too long" if task.cancelled() else task.exception()
        if problem is not None:
            _log.warning("an ACA session was not deleted; it ends after its pool's idle time: %s", problem)


async def _cancel_all() -> None:
    """Cancel all tasks of the loop: a caller that awaits one from another loop would hang."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_lock = ProcessLock()
_loops: dict[int, KernelLoop] = {}  # by process id: a forked process has no threads of its parent
_ending: list[KernelLoop] = []


def acquire_loop() -> KernelLoop:
    """Return the loop, for one more kernel; start it for the first."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = KernelLoop()
        loop.users += 1
        return loop


def release_loop(loop: KernelLoop) -> None:
    """Count one kernel less; end the loop after the last."""
    with _lock:
        loop.users -= 1
        if loop.users == 0:
            _loops.pop(os.getpid(), None)
            _ending[:] = [*(other for other in _ending if other._thread.is_alive()), loop]
            loop.stop()


@atexit.register
def _join_ending_loops() -> None:
    # Daemon threads stop with the process: sessions that are being ended would live on, and cost money.
    for loop in _ending:
        loop.join()


_SOCKET_TYPES = {"shell": zmq.ROUTER, "iopub": zmq.XPUB, "stdin": zmq.ROUTER, "control": zmq.ROUTER, "hb": zmq.ROUTER}
_REQUESTS = ("shell", "control")
_MESSAGES_PER_TURN = 16

Message = dict[str, Any]


class KernelSockets:
    """The sockets of one kernel. Call all methods in the loop's thread.

    Parameters
    ----------
    context : zmq.Context
        Context of the sockets.
    info : mapping
        As in a connection file; each port of 0 is replaced by a free one.
    on_request : callable
        Called with the channel, the identities and the message of each request with a valid signature.
    log : Logger
        Log of messages that cannot be handled.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        info: Mapping[str, Any],
        on_request: Callable[[str, list[bytes], Message], None],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_request = on_request
        self._log = log
        self._session = Session(key=_as_bytes(info["key"]), signature_scheme=info["signature_scheme"])
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self.ports: dict[str, int] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)  # closes the sockets that are bound already
            for channel, socket_type in _SOCKET_TYPES.items():
                self._bind(context.socket(socket_type), channel, info)
            undo.pop_all()
        # Nothing comes on stdin, because code in a session cannot ask for input.
        for channel in ("hb", "iopub", *_REQUESTS):
            self._loop.add_reader(self._sockets[channel].FD, self._drain, channel)
            self._loop.call_soon(self._drain, channel)  # ZeroMQ signals only messages that come after a read

    def _bind(self, socket: zmq.Socket[bytes], channel: str, info: Mapping[str, Any]) -> None:
        self._sockets[channel] = socket
        socket.linger = 1000
        socket.sndhwm = 0  # the session's answers are bounded, so nothing has to be dropped here
        if channel != "iopub":
            socket.router_handover = True  # accept a client that reconnects under its name
        else:
            socket.xpub_verbose = True  # pass on every subscription, so every client is greeted
        if info.get("curve_secretkey"):
            socket.curve_server = True
            socket.curve_publickey = _as_bytes(info["curve_publickey"])
            socket.curve_secretkey = _as_bytes(info["curve_secretkey"])
        port, place = info.get(f"{channel}_port", 0), f"{info['transport']}://{info['ip']}"
        if info["transport"] == "ipc":
            # jupyter_client makes the paths of ipc sockets from these numbers.
            port = port or len(self._sockets)
            socket.bind(f"{place}-{port}")
        elif port:
            socket.bind(f"{place}:{port}")
        else:
            port = socket.bind_to_random_port(place)
        self.ports[channel] = port

    def _drain(self, channel: str) -> None:
        socket = self._sockets.get(channel)
        if socket is None:
            return
        for _ in range(_MESSAGES_PER_TURN):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._handle(channel, frames)
            except Exception:  # the messages behind it must be read: ZeroMQ does not signal them again
                self._log.exception("could not handle a message on %s", channel)
            if channel not in self._sockets:
                return
        self._loop.call_soon(self._drain, channel)  # let other kernels run first

    def _handle(self, channel: str, frames: list[bytes]) -> None:
        if channel == "hb":
            self._sockets["hb"].send_multipart(frames)
        elif channel == "iopub":
            if frames[0][:1] == b"\x01":  # JEP 65: greet a new subscriber
                self.publish("iopub_welcome", {"subscription": frames[0][1:].decode("utf-8", "replace")}, None)
        else:
            identities, parts = self._session.feed_identities(frames)
            try:
                message = self._session.deserialize(parts)
            except (ValueError, KeyError, TypeError) as error:
                self._log.warning("ignored a message on %s: %s", channel, error)
                return
            self._on_request(channel, identities, message)

    def publish(self, msg_type: str, content: Mapping[str, Any], parent: Message | None) -> None:
        """Send a message to all subscribers."""
        self._send("iopub", msg_type, content, parent, [msg_type.encode()])

    def reply(self, channel: str, content: Mapping[str, Any], request: Message, identities: list[bytes]) -> None:
        """Answer a request."""
        msg_type = request["header"]["msg_type"].replace("_request", "_reply")
        self._send(channel, msg_type, content, request, identities)

    def _send(
        self, channel: str, msg_type: str, content: Mapping[str, Any], parent: Message | None, identities: list[bytes]
    ) -> None:
        socket = self._sockets.get(channel)
        if socket is None:
            return
        self._session.send(socket, msg_type, dict(content), parent, ident=identities)
        # Sending can use up the socket's edge-triggered readiness, so look for input once more.
        self._loop.call_soon(self._drain, channel)

    def close(self) -> None:
        """Close the sockets; messages that were sent get a second to leave."""
        for socket in self._sockets.values():
            self._loop.remove_reader(socket.FD)
            socket.close()
        self._sockets = {}


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
