"""Kernel side of an ACA session: answers Jupyter messages by runs in the session.

Requests of the shell channel are answered one after the other, those of the control channel at once. If the service
cannot do what a request asks, the reply says so; for replies that front ends do not show, an output of the cell does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from fnmatch import fnmatchcase
from typing import Any

from ...errors import ExecError
from ..protocol.addresses import MAX_RUN_SECONDS
from .aca_session import ACASession, RunFailedError, SessionExpiredError
from .kernel_loop import KernelLoop, KernelSockets, Message
from .session_answers import Answer, failed_answer

NO_INTERRUPT = (
    "code in an Azure Container Apps session cannot be interrupted: it ends by itself, or after at most "
    f"{MAX_RUN_SECONDS} seconds. Restart the kernel to be rid of it, with all of the session's variables and files"
)
_BANNER = "Python in an Azure Container Apps session. Outputs come when a cell has ended; it cannot be interrupted."
# Failures of the service or the session; the user gets them in the place of an exception of the code.
_SERVICE_FAILURES = (ExecError, SessionExpiredError, RunFailedError)
_Request = tuple[str, list[bytes], Message]
_DIED = 1  # the exit code of the process on Azure is not known
_MAX_HISTORY_CELLS = 1000


class SessionDiedError(Exception):
    """The session's state was lost during a run."""


class ACAKernel:
    """A kernel, which can be restarted. Call all methods in the loop's thread.

    Parameters
    ----------
    loop : KernelLoop
        The loop of all ACA kernels.
    info : mapping
        As in a connection file; the kernel chooses a port for each 0.
    new_session : callable
        Returns the session of a fresh kernel, which starts on Azure with its first request.
    log : Logger
        Log of the provisioner.
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
        self.start()

    @property
    def ports(self) -> Mapping[str, int]:
        """Port of each channel."""
        return self._sockets.ports

    async def restart(self) -> None:
        """End the kernel if it lives, and start a fresh one on the same sockets."""
        self.end(0)
        self.start()

    def start(self) -> None:
        """Reset to the state of a fresh kernel."""
        self.exited: Future[int] = Future()
        self.exited.set_running_or_notify_cancel()  # one waiter's cancellation must not cancel it for all others
        self.session = self._new_session()
        self._history = History()
        self._waiting: deque[_Request] = deque()
        self._running: Message | None = None
        self._count = 1
        self._sockets.publish("status", {"execution_state": "starting"}, None)

    def end(self, exit_code: int) -> None:
        """End the kernel: cancel the current request, and end the session on Azure in the background."""
        if self.exited.done():
            return
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        if self.session.is_started:
            self._loop.delete_in_background(self.session.delete())
        self.exited.set_result(exit_code)

    def close(self) -> None:
        """End the kernel and close its sockets."""
        self.end(0)
        self._sockets.close()

    def _on_request(self, channel: str, identities: list[bytes], request: Message) -> None:
        # The sockets of a dead kernel stay open, for a restart.
        if self.exited.done():
            return
        kind = request["header"]["msg_type"]
        if channel == "control" and kind in ("interrupt_request", "shutdown_request", "kernel_info_request"):
            self._publish_state("busy", request)
            self._sockets.reply(channel, self._answer_control(kind, request), request, identities)
            self._publish_state("idle", request)
            if kind == "shutdown_request":
                self.end(0)
            elif self._running is not None:  # front ends show the latest state
                self._publish_state("busy", self._running)
        elif channel == "shell":
            self._waiting.append((channel, identities, request))
            if self._worker is None:
                self._worker = asyncio.get_running_loop().create_task(self._work())

    def _answer_control(self, kind: str, request: Message) -> Mapping[str, Any]:
        if kind == "kernel_info_request":
            return kernel_info(self.session.python_version)
        if kind == "shutdown_request":
            return {"status": "ok", "restart": bool(request["content"].get("restart"))}
        return self.interrupt()

    def interrupt(self) -> Mapping[str, Any]:
        """Report that the current run cannot be interrupted, and abort the requests behind it."""
        if self._running is None:
            return {"status": "ok"}
        self._abort_waiting()
        # Front ends do not show the reply.
        self._sockets.publish("stream", {"name": "stderr", "text": f"{NO_INTERRUPT}.\n"}, self._running)
        return {"status": "error", "ename": "InterruptNotPossible", "evalue": NO_INTERRUPT, "traceback": []}

    async def _work(self) -> None:
        while self._waiting:
            channel, identities, request = self._waiting.popleft()
            self._running = request
            self._publish_state("busy", request)
            try:
                reply = await self._answer(request)
            except SessionDiedError:  # end without a reply, like a process that dies
                self._worker = None  # or `end` would cancel this task
                self.end(_DIED)
                return
            except Exception as error:  # one bad request must not end the kernel
                self._log.exception("could not answer a request for the ACA kernel")
                reply = failed_answer(type(error).__name__, str(error)).reply
            self._running = None
            if reply is not None:
                self._sockets.reply(channel, reply, request, identities)
            self._publish_state("idle", request)
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
            # The protocol's answer to a comm whose target is unknown.
            self._sockets.publish("comm_close", {"comm_id": content.get("comm_id"), "data": {}}, request)
        elif kind in ("complete_request", "inspect_request", "is_complete_request"):
            return await self._ask(kind.removesuffix("_request"), content)
        return None

    async def _execute(self, request: Message) -> Mapping[str, Any]:
        content, count = request["content"], self._count
        code, silent = content["code"], bool(content.get("silent", False))
        store_history = bool(content.get("store_history", not silent))
        if not silent:
            self._sockets.publish("execute_input", {"code": code, "execution_count": count}, request)
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
                self._sockets.publish("stream", {"name": "stderr", "text": f"{error}\n"}, request)
                raise SessionDiedError from error
            answer = _answer_failure(error)
        except _SERVICE_FAILURES as error:
            answer = _answer_failure(error)
        next_count = answer.reply.get("next_count")
        # User code can forge answers. IPython counts only cells that are stored and not blank.
        if not isinstance(next_count, int) or next_count <= 0:
            next_count = count + (store_history and bool(code.strip()))
        self._count = next_count
        for msg_type, output in answer.messages:
            self._sockets.publish(msg_type, output, request)
        if answer.dropped_characters:
            text = f"{answer.dropped_characters} characters of output were left out: there is too much of it.\n"
            self._sockets.publish("stream", {"name": "stderr", "text": text}, request)
        if answer.reply.get("status") != "ok" and content.get("stop_on_error", True):
            self._abort_waiting()
        return {"execution_count": count, **{k: v for k, v in answer.reply.items() if k != "next_count"}}

    async def _ask(self, verb: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a question about code; without IPython in the session, with the reply for "unknown"."""
        arguments: dict[str, Any] = {"code": content["code"]}
        unknown: dict[str, Any] = {"status": "unknown"}
        if verb != "is_complete":
            position = content.get("cursor_pos")
            arguments["cursor_pos"] = position = len(content["code"]) if position is None else position
            unknown = {"status": "ok", "metadata": {}}
        if verb == "complete":
            unknown |= {"matches": [], "cursor_start": position, "cursor_end": position}
        elif verb == "inspect":
            arguments["detail_level"] = content.get("detail_level", 0)
            unknown |= {"found": False, "data": {}}
        try:
            return await self.session.ask(verb, **arguments) or unknown
        except _SERVICE_FAILURES as error:
            return _answer_failure(error).reply

    def _abort_waiting(self) -> None:
        """Answer the waiting cells without running them."""
        waiting, self._waiting = self._waiting, deque()
        for channel, identities, request in waiting:
            if request["header"]["msg_type"] != "execute_request":
                self._waiting.append((channel, identities, request))
                continue
            self._publish_state("busy", request)
            self._sockets.reply(channel, {"status": "aborted"}, request, identities)
            self._publish_state("idle", request)

    def _publish_state(self, state: str, request: Message) -> None:
        self._sockets.publish("status", {"execution_state": state}, request)


class History:
    """The last cells of one kernel, for ``history_request``.

    It is kept here because the session's own history is lost when the session ends.
    """

    def __init__(self) -> None:
        self._cells: deque[tuple[int, int, str]] = deque(maxlen=_MAX_HISTORY_CELLS)

    def add(self, count: int, code: str) -> None:
        """Add the kernel's `count`-th cell."""
        if code.strip():
            self._cells.append((1, count, code))

    def find(self, request: Mapping[str, Any]) -> list[Any]:
        """Return the cells that a ``history_request`` asks for, without outputs."""
        cells = list(self._cells)
        kind = request.get("hist_access_type")
        if kind == "range":
            first, last = request.get("start") or 0, request.get("stop")
            # Session 0 is the current one. This kernel has only one, with the number 1.
            if request.get("session", 0) not in (0, 1):
                cells = []
            cells = [cell for cell in cells if cell[1] >= first and (last is None or cell[1] < last)]
        else:
            if kind == "search":
                pattern = str(request.get("pattern") or "*")
                cells = [cell for cell in cells if fnmatchcase(cell[2], pattern)]
                if request.get("unique"):
                    cells = sorted({cell[2]: cell for cell in cells}.values())
            count = request.get("n")
            cells = cells[-count:] if count else cells
        if request.get("output"):
            return [(session, number, (code, None)) for session, number, code in cells]
        return cells


def kernel_info(python_version: str) -> dict[str, Any]:
    """Return the content of a ``kernel_info_reply``; the version is empty before the session has started."""
    language = {
        "name": "python",
        "version": python_version or "3",
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }
    return {
        "status": "ok",
        "protocol_version": "5.4",
        "implementation": "jupyter_exec_ext-aca",
        "implementation_version": "1.0",
        "language_info": language,
        "banner": _BANNER,
        "help_links": [],
        "supported_features": [],
    }


def _answer_failure(error: Exception) -> Answer:
    return failed_answer(type(error).__name__.removesuffix("Error"), str(error))


def _asks_to_exit(reply: Mapping[str, Any] | None) -> bool:
    """Return whether code has called ``exit``, which ends a kernel."""
    payload = None if reply is None else reply.get("payload")
    return isinstance(payload, list) and any(
        isinstance(item, dict) and item.get("source") == "ask_exit" and not item.get("keepkernel") for item in payload
    )
