"""The kernel side: Jupyter messages on the one hand, an ACA session on the other.

Requests of the shell channel are answered one after the other, those of the control channel at once. Whatever the
service cannot do is said in the reply, and where a reply is not shown, beside the cell that it concerns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from ...errors import ExecError
from .aca_session import ACASession, RunFailedError, SessionExpiredError
from .kernel_history import History
from .kernel_info import kernel_info
from .kernel_loop import KernelLoop
from .kernel_sockets import KernelSockets, Message
from .session_answers import Answer, failed

NO_INTERRUPT = (
    "code in an Azure Container Apps session cannot be interrupted: it ends by itself, or after at most 220 seconds. "
    "Restart the kernel to be rid of it, with all of the session's variables and files"
)
# What can become of a request that is no fault of ours; it is said where an exception of the code would be.
_TOLD = (ExecError, SessionExpiredError, RunFailedError)
_Request = tuple[str, list[bytes], Message]
_DIED = 1  # what the code on Azure ended with is not told


class SessionDiedError(Exception):
    """The session's state is gone in the middle of a run."""


class ACAKernel:
    """A kernel, which can be restarted; all methods are called in the loop's thread.

    Parameters
    ----------
    info : mapping
        As in a connection file, with a port of 0 where one is to be chosen.
    new_session : callable
        Makes the session of a fresh kernel; nothing of it is on Azure before its first request.
    """

    def __init__(
        self,
        loop: KernelLoop,
        info: Mapping[str, Any],
        new_session: Callable[[], ACASession],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._loop = loop
        self._log = log
        self._new_session = new_session
        self._sockets = KernelSockets(loop.context, info, self._on_request, log)
        self._worker: asyncio.Task[None] | None = None
        self.begin()

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of each channel."""
        return self._sockets.ports

    # --- its life ---

    def begin(self) -> None:
        """Be a fresh kernel."""
        self.exited: Future[int] = Future()
        self.exited.set_running_or_notify_cancel()  # who waits for it can give up, and the others go on waiting
        self.session = self._new_session()
        self._history = History()
        self._waiting: deque[_Request] = deque()
        self._running: Message | None = None
        self._count = 1
        self._sockets.publish("status", {"execution_state": "starting"}, None)

    def end(self, exit_code: int) -> None:
        """Be dead: what runs is given up, and the session ended on Azure."""
        if self.exited.done():
            return
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        if self.session.begun:
            self._loop.leave(self.session.delete())
        self.exited.set_result(exit_code)

    def close(self) -> None:
        """Let go of the sockets."""
        self.end(0)
        self._sockets.close()

    # --- requests ---

    def _on_request(self, channel: str, identities: list[bytes], request: Message) -> None:
        if self.exited.done():
            return
        kind = request["header"]["msg_type"]
        if channel == "control" and kind in ("interrupt_request", "shutdown_request", "kernel_info_request"):
            self._sockets.publish("status", {"execution_state": "busy"}, request)
            self._sockets.reply(channel, self._control(kind, request), request, identities)
            self._sockets.publish("status", {"execution_state": "idle"}, request)
            if kind == "shutdown_request":
                self.end(0)
            elif self._running is not None:  # front ends show what they heard last
                self._sockets.publish("status", {"execution_state": "busy"}, self._running)
        elif channel == "shell":
            self._waiting.append((channel, identities, request))
            if self._worker is None:
                self._worker = asyncio.get_running_loop().create_task(self._work())

    def _control(self, kind: str, request: Message) -> Mapping[str, Any]:
        if kind == "kernel_info_request":
            return kernel_info(self.session.python_version)
        if kind == "shutdown_request":
            return {"status": "ok", "restart": bool(request["content"].get("restart"))}
        return self.interrupt()

    def interrupt(self) -> Mapping[str, Any]:
        """Say that what runs cannot be interrupted; what waits behind it is not run."""
        if self._running is None:
            return {"status": "ok"}
        self._abort_waiting()
        # Nobody shows the reply.
        self._publish(("stream", {"name": "stderr", "text": f"{NO_INTERRUPT}.\n"}), self._running)
        return {"status": "error", "ename": "InterruptNotPossible", "evalue": NO_INTERRUPT, "traceback": []}

    async def _work(self) -> None:
        while self._waiting:
            channel, identities, request = self._waiting.popleft()
            self._running = request
            self._sockets.publish("status", {"execution_state": "busy"}, request)
            try:
                reply = await self._answer(request)
            except asyncio.CancelledError:
                raise
            except SessionDiedError:  # as a process that dies: without a reply
                self._worker = None
                self.end(_DIED)
                return
            except Exception as error:  # the kernel lives on: the fault may be that of one request
                self._log.exception("a request could not be answered")
                reply = failed(type(error).__name__, str(error)).reply
            self._running = None
            if reply is not None:
                self._sockets.reply(channel, reply, request, identities)
            self._sockets.publish("status", {"execution_state": "idle"}, request)
            if _asks_to_exit(reply):
                self.end(0)
        self._worker = None

    async def _answer(self, request: Message) -> Mapping[str, Any] | None:
        kind, content = request["header"]["msg_type"], request["content"]
        if kind == "kernel_info_request":
            return kernel_info(self.session.python_version)
        if kind == "execute_request":
            return await self._execute(request)
        if kind == "history_request":
            return {"status": "ok", "history": self._history.find(content)}
        if kind == "comm_info_request":
            return {"status": "ok", "comms": {}}
        if kind == "comm_open":
            self._sockets.publish("comm_close", {"comm_id": content.get("comm_id"), "data": {}}, request)
        elif kind in ("complete_request", "inspect_request", "is_complete_request"):
            return await self._ask(kind.removesuffix("_request"), content)
        return None

    async def _execute(self, request: Message) -> Mapping[str, Any]:
        content, count = request["content"], self._count
        code, silent = content["code"], bool(content.get("silent", False))
        store_history = bool(content.get("store_history", not silent))
        if not silent:
            self._publish(("execute_input", {"code": code, "execution_count": count}), request)
        if store_history:
            self._history.add(count, code)
        try:
            answer = await self.session.execute(
                count,
                code,
                silent=silent,
                store_history=store_history,
                expressions=content.get("user_expressions") or {},
            )
        except RunFailedError as error:
            if await self.session.is_lost():
                self._publish(("stream", {"name": "stderr", "text": f"{error}\n"}), request)
                raise SessionDiedError from error
            answer = _failure(error)
        except _TOLD as error:
            answer = _failure(error)
        self._count = _next_count(answer, count + (store_history and bool(code.strip())))
        for message in answer.messages:
            self._publish(message, request)
        if answer.dropped_characters:
            text = f"{answer.dropped_characters} characters of output were left out: there is too much of it.\n"
            self._publish(("stream", {"name": "stderr", "text": text}), request)
        if answer.reply.get("status") != "ok" and content.get("stop_on_error", True):
            self._abort_waiting()
        return {"execution_count": count, **{k: v for k, v in answer.reply.items() if k != "next_count"}}

    async def _ask(self, verb: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        code, position = content["code"], content.get("cursor_pos")
        position = len(code) if position is None else position
        arguments: dict[str, Mapping[str, Any]] = {
            "complete": {"code": code, "cursor_pos": position},
            "inspect": {"code": code, "cursor_pos": position, "detail_level": content.get("detail_level", 0)},
            "is_complete": {"code": code},
        }
        unknown: dict[str, Mapping[str, Any]] = {
            "complete": {
                "status": "ok",
                "matches": [],
                "cursor_start": position,
                "cursor_end": position,
                "metadata": {},
            },
            "inspect": {"status": "ok", "found": False, "data": {}, "metadata": {}},
            "is_complete": {"status": "unknown"},
        }
        try:
            return await self.session.ask(verb, **arguments[verb]) or unknown[verb]
        except _TOLD as error:
            return _failure(error).reply

    def _abort_waiting(self) -> None:
        """Answer the cells that wait without running them."""
        waiting, self._waiting = self._waiting, deque()
        for channel, identities, request in waiting:
            if request["header"]["msg_type"] != "execute_request":
                self._waiting.append((channel, identities, request))
                continue
            self._sockets.publish("status", {"execution_state": "busy"}, request)
            self._sockets.reply(channel, {"status": "aborted"}, request, identities)
            self._sockets.publish("status", {"execution_state": "idle"}, request)

    def _publish(self, message: tuple[str, Mapping[str, Any]], request: Message) -> None:
        self._sockets.publish(*message, request)


def _failure(error: Exception) -> Answer:
    return failed(type(error).__name__.removesuffix("Error"), str(error))


def _next_count(answer: Answer, otherwise: int) -> int:
    count = answer.reply.get("next_count")
    return count if isinstance(count, int) and count > 0 else otherwise


def _asks_to_exit(reply: Mapping[str, Any] | None) -> bool:
    """Return whether code has said ``exit``, which ends a kernel."""
    payload = None if reply is None else reply.get("payload")
    return isinstance(payload, list) and any(
        isinstance(item, dict) and item.get("source") == "ask_exit" and not item.get("keepkernel") for item in payload
    )
