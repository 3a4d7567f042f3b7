"""One client of a kernel, as the server keeps it: it outlives its WebSocket for a reconnect.

It forwards the client's requests to the session. `execution_display` sends the session's output to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..engine.executions.live_execution import LiveExecution
from ..errors import ExecError, Forbidden, InvalidRequest, NoInputRequested, PolicyDenied
from ..models import JupyterExecutionRequest, Session, SessionState
from ..protocol.kernel_messages import KernelMessage
from .comm_outbox import CommOutbox
from .connection_interface import Connection, Disconnected
from .execution_display import ClientTooSlow, ExecutionDisplay
from .incoming_messages import IncomingMessage, get_needed_access, limit_history_request, read_message, select_history
from .interrupts import interrupt_kernel
from .outgoing_messages import OutgoingMessage, make_note, make_refusal, make_status

# Most tasks of one client: requests that wait for the kernel, and replies that wait for the client.
_MAX_TASKS = 200
_MAX_COMM_ID_CHARACTERS = 200
# These run code in IPython: a completion after `from x import` imports x, and an inspection reads properties.
_CODE_RUNNING_TYPES = ("complete_request", "inspect_request")


class ReconnectableClient:
    """Server's side of one client of a session's kernel.

    While the client is disconnected, its messages wait for the next connection.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    caller : Caller
        Bearer of the token.
    session_id : str
        Id of the session.

    Attributes
    ----------
    is_behind : bool
        True if messages for the client were dropped. A reconnect then needs a new `ReconnectableClient`.
    """

    def __init__(self, engine: ExecEngine, caller: Caller, session_id: str) -> None:
        self.is_behind = False
        self._engine = engine
        self._caller = caller
        self._session_id = session_id
        self._connection: Connection | None = None
        self._may_send = asyncio.Event()
        self._has_ended = False
        self._is_shutting_down = False
        self._comm_outbox = CommOutbox(self._send, lambda position: self._display.has_sent(position))
        self._display = ExecutionDisplay(self._send, self._comm_outbox.send_due, engine.log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch: Callable[[], None] | None = None

    async def connect(self, connection: Connection, caller: Caller) -> None:
        """Use a new connection, and close the earlier one.

        Parameters
        ----------
        connection : Connection
            The client's WebSocket.
        caller : Caller
            Bearer of the token, with its present rights.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        self._caller = caller
        if self._unwatch is None:
            self._unwatch = await self._engine.messages.watch(self._caller, self._session_id, self)
            self._start_task(self._display.run())
            self._start_task(self._comm_outbox.run())
        if self._connection is not None:
            self._connection.end_connection("the client has connected again")
        self._connection = connection
        self._may_send.set()

    def adopt_executions(self, earlier: ReconnectableClient) -> None:
        """Send the executions that the same client requested, and that an `earlier` one did not finish."""
        self._display.adopt_executions(earlier._display)

    def disconnect(self, connection: Connection) -> None:
        """Keep messages for the next connection, unless it has replaced this one already."""
        if self._connection is connection:
            self._connection = None
            self._may_send.clear()

    def close(self) -> None:
        """Stop all tasks of the client. The executions that it requested go on."""
        self._has_ended = True
        self._may_send.set()
        if self._unwatch is not None:
            self._unwatch()
        for task in self._tasks:
            task.cancel()

    def _end_connection(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.end_connection(reason)

    def _mark_behind(self, reason: str) -> None:
        """Close the connection and mark the client as incomplete, since it misses messages from now on."""
        self.is_behind = True
        self._end_connection(reason)

    async def _send(self, message: OutgoingMessage) -> None:
        """Send a message once; while the client is disconnected, wait for its next connection."""
        while True:
            await self._may_send.wait()
            connection = self._connection
            if self._has_ended or connection is None:
                raise Disconnected
            try:
                await connection.send(message)
            except Disconnected:
                self.disconnect(connection)
            else:
                return

    # --- requests of the client ---

    async def handle_frame(self, frame: str | bytes, *, is_v1: bool) -> None:
        """Handle a message of the client; a malformed one ends the connection.

        Parameters
        ----------
        frame : str or bytes
            Frame of the WebSocket.
        is_v1 : bool
            True for the binary sub-protocol ``v1.kernel.websocket.jupyter.org``.

        Raises
        ------
        Disconnected
            If the client was removed before it received the reply.
        """
        try:
            message = read_message(frame, is_v1=is_v1)
        except InvalidRequest as error:
            self._end_connection(error.message)
            return
        await self._handle_or_refuse(message, self._handle)

    async def _handle_or_refuse(
        self, message: IncomingMessage, handle: Callable[[IncomingMessage], Awaitable[None]]
    ) -> None:
        try:
            await handle(message)
        except ExecError as error:
            await self._send_refusal(message, error)

    async def _handle(self, message: IncomingMessage) -> None:
        access, kind = get_needed_access(message), message.msg_type
        if access is None:
            raise Forbidden(f"clients of this API may not send {kind!r} on {message.channel!r}")
        if self._connection is None:
            raise Disconnected
        await self._connection.require_access(access)
        if kind == "execute_request":
            await self._execute(message)
        elif kind == "input_reply":
            await self._answer_input(message)
        elif kind == "interrupt_request":
            self._connection.count_recorded_message()
            await interrupt_kernel(self._engine, self._caller, self._session_id)
            await self._reply(message, {"status": "ok"})
        elif kind == "shutdown_request":
            self._start_task(self._handle_or_refuse(message, self._shut_down))
        elif kind == "comm_info_request" and not self._may_use_comms():
            await self._reply(message, {"status": "ok", "comms": {}})
        elif message.channel == "shell" and not kind.endswith("_request"):
            await self._forward_comm_message(message)
        else:
            self._start_task(self._handle_or_refuse(message, self._forward_request))

    async def _execute(self, message: IncomingMessage) -> None:
        expressions = message.get_user_expressions()
        if expressions and self._has_approvals():
            raise PolicyDenied(
                "'user_expressions' are refused under a policy with approvals, since approvers do not see them"
            )
        request = JupyterExecutionRequest(
            message.get_text("code"),
            # Without the right to answer, `input()` would wait until the time limit.
            allow_input=message.get_flag("allow_stdin", default=True) and "executions:control" in self._caller.scopes,
            store_history=message.get_flag("store_history", default=True) and not message.is_silent,
            metadata={"user_expressions": dict(expressions)} if expressions else {},  # for the record of the execution
            user_expressions=expressions,
            is_silent=message.is_silent,
            stops_on_error=message.get_flag("stop_on_error", default=True),
            header=message.header,
        )
        # The message's id is the idempotency key: a message that is sent again runs once.
        execution = await self._engine.execute(self._caller, self._session_id, request, message.msg_id)
        try:
            self._display.add_execution(execution, message)
        except ClientTooSlow:
            self._mark_behind("the client reads too slowly to follow the session")

    async def _answer_input(self, message: IncomingMessage) -> None:
        prompt = self._display.prompt
        # Some clients send no parent with their answer.
        if prompt is None or message.parent_id not in ("", prompt.msg_id):
            raise NoInputRequested("no code that this client sent waits for input")
        await self._engine.answer_input(self._caller, prompt.execution_id, message.get_text("value"))
        self._display.prompt = None

    async def _forward_request(self, message: IncomingMessage) -> None:
        """Send a request to the kernel, and its reply to the client."""
        if message.msg_type in _CODE_RUNNING_TYPES and self._has_approvals():
            raise PolicyDenied(
                f"{message.msg_type!r} can run code, such as imports, so it is refused under a policy with approvals"
            )
        is_history = message.msg_type == "history_request"
        content = limit_history_request(message.content) if is_history else message.content
        await self._send(make_status("busy", message.header))
        answer = await self._engine.messages.send_request(
            self._caller, self._session_id, message.msg_type, content, channel=message.channel
        )
        if is_history:
            answer = {**answer, "history": select_history(message.content, answer.get("history"))}
        await self._send(OutgoingMessage(message.channel, message.reply_type, answer, message.header))
        await self._send(make_status("idle", message.header))

    async def _shut_down(self, message: IncomingMessage) -> None:
        if message.is_restart:
            await self._engine.restart_session(self._caller, self._session_id)
        else:
            self._is_shutting_down = True
            try:
                await self._engine.delete_session(self._caller, self._session_id)
            except BaseException:
                self._is_shutting_down = False
                raise
        await self._reply(message, {"status": "ok", "restart": message.is_restart})
        if self._is_shutting_down:
            await self._send_dead_status("the client has shut the kernel down")

    async def _forward_comm_message(self, message: IncomingMessage) -> None:
        if not self._may_use_comms():
            raise PolicyDenied(
                "comms, which widgets use, run code without an execution's record; they need a policy with "
                "'allow_comms' and without approvals"
            )
        await self._engine.messages.send_comm_message(
            self._caller, self._session_id, message.msg_type, message.content, message.metadata, message.header
        )

    def _has_approvals(self) -> bool:
        return any(policy.approval.mode != "never" for policy in self._caller.policies)

    def _may_use_comms(self) -> bool:
        return all(policy.allow_comms for policy in self._caller.policies) and not self._has_approvals()

    # --- replies ---

    async def _reply(self, message: IncomingMessage, content: Mapping[str, Any]) -> None:
        await self._send(make_status("busy", message.header))
        await self._send(OutgoingMessage(message.channel, message.reply_type, content, message.header))
        await self._send(make_status("idle", message.header))

    async def _send_refusal(self, message: IncomingMessage, error: ExecError) -> None:
        """Tell the client why a message was refused."""
        if self._connection is not None:
            self._connection.record_refusal(message.known_type, error)
        content = make_refusal(error)
        if message.channel == "stdin":  # an answer to a prompt has no reply
            await self._send(make_note(error.message, message.header))
            return
        await self._send(make_status("busy", message.header))
        if message.msg_type == "execute_request":  # clients show errors from iopub, and not from replies
            await self._send(OutgoingMessage("iopub", "error", content, message.header))
            content = {**content, "execution_count": 0}  # jupyter_console 6.6 ends at a reply without one
        if message.msg_type.endswith("_request"):
            await self._send(OutgoingMessage(message.channel, message.reply_type, content, message.header))
        else:
            await self._send(make_note(error.message, message.header))
        if message.msg_type == "comm_open":
            closed = {"comm_id": str(message.content.get("comm_id"))[:_MAX_COMM_ID_CHARACTERS], "data": {}}
            await self._send(OutgoingMessage("iopub", "comm_close", closed, message.header))
        await self._send(make_status("idle", message.header))

    # --- events of the session ---

    def on_execution(self, execution: LiveExecution) -> None:
        """Send the messages of an execution of any client, as `SessionWatcher` requires."""
        try:
            self._display.add_execution(execution)
        except ClientTooSlow:
            self._mark_behind("the client reads too slowly to follow the session")

    def on_record(self, record: Session) -> None:
        """Send the status ``dead`` when the session has ended.

        A restart sends no status: JupyterLab would show ``restarting`` as a crash of the kernel.
        """
        if record.state is SessionState.ENDED and not self._is_shutting_down:
            self._start_task(self._send_dead_status(record.ended_reason or "the session has ended"))

    async def _send_dead_status(self, reason: str) -> None:
        await self._send(make_status("dead", {}))
        self._end_connection(reason)

    def on_comm_output(self, message: KernelMessage, parent: Mapping[str, str]) -> None:
        """Send a message of a comm, or output of its handler, if the caller may use comms."""
        if not self._may_use_comms():
            return
        outgoing = OutgoingMessage("iopub", message.msg_type, message.content, parent, message.metadata)
        if not self._comm_outbox.add_message(outgoing, self._display.get_position()):
            self._mark_behind("the client reads too slowly to follow the session's widgets")

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; a client with too many of them is disconnected."""
        if len(self._tasks) >= _MAX_TASKS or self._has_ended:
            work.close()
            self._mark_behind("too many requests and messages wait for this client")
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Disconnected):
            # A defect of this package. Without a close, the client would wait forever.
            self._engine.log.error("a task for a kernel's client failed", exc_info=error)
            self._mark_behind("the server failed; its log has the details")
