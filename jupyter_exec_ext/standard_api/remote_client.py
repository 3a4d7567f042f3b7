"""Remote client of a session's kernel: the server's side of one client, through one WebSocket after another.

It takes the client's requests to the session. What happens there is shown by `execution_display`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..engine.executions.live_execution import LiveExecution
from ..errors import ExecError, Forbidden, InvalidRequest, NoInputRequested, PolicyDenied
from ..models import JupyterExecutionRequest, Session, SessionState
from ..protocol.kernel_messages import KernelMessage
from ..server.gate import Access
from .comm_outbox import CommOutbox
from .execution_display import ExecutionDisplay, ReadsTooSlowly
from .incoming_messages import IncomingMessage, limit_history_request, needed_rights, read_message, select_history
from .interrupts import interrupt_kernel
from .outgoing_messages import OutgoingMessage, make_note, make_refusal, make_status

# Requests of one client that wait for the kernel, or whose answers wait for the client.
_MAX_TASKS = 200
_MAX_COMM_ID_CHARACTERS = 200
# A completion after `from x import` imports x, and an inspection reads properties.
_RUNS_CODE = ("complete_request", "inspect_request")


class Disconnected(Exception):
    """The client's connection has ended, or the client is forgotten."""


class Connection(Protocol):
    """A client's WebSocket."""

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message, and return when there is room for more; raise `Disconnected` if the connection has ended."""

    async def require(self, access: Access) -> None:
        """Raise an error if the caller, or the deployment's user behind it, does not have these rights."""

    def note_refusal(self, message_type: str, error: ExecError) -> None:
        """Log and record that a message was refused, and count it as recorded."""

    def count_recorded(self) -> None:
        """Count a message that leaves a record, and that no policy limits; after many, messages are read slowly."""

    def cut_off(self, reason: str) -> None:
        """End the connection."""


class RemoteClient:
    """A client of the kernel of one session.

    While its connection is broken, messages wait for the next one.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    caller : Caller
        Who it is.
    session_id : str
        The session.

    Attributes
    ----------
    is_behind : bool
        True if the client cannot be shown everything any more. It is not to be connected again.
    """

    def __init__(self, engine: ExecEngine, caller: Caller, session_id: str) -> None:
        self.is_behind = False
        self._engine = engine
        self._caller = caller
        self._session_id = session_id
        self._connection: Connection | None = None
        self._may_send = asyncio.Event()
        self._has_ended = False
        self._shuts_down = False
        self._display = ExecutionDisplay(self._send, engine.log)
        self._comm_outbox = CommOutbox(self._send)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch: Callable[[], None] | None = None

    async def connect(self, connection: Connection, caller: Caller) -> None:
        """Use a connection from now on, in the place of the one before.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        self._caller = caller
        if self._unwatch is None:
            self._unwatch = await self._engine.messages.watch(self._caller, self._session_id, self)
            self._start(self._display.run())
            self._start(self._comm_outbox.run())
        if self._connection is not None:
            self._connection.cut_off("the client has connected again")
        self._connection = connection
        self._may_send.set()

    def adopt(self, earlier: RemoteClient) -> None:
        """Go on with the executions that the same client has asked for, and that it was not shown whole."""
        self._display.adopt(earlier._display)

    def disconnect(self, connection: Connection) -> None:
        """Keep what comes for the client's next connection, unless it has that already."""
        if self._connection is connection:
            self._connection = None
            self._may_send.clear()

    def end(self) -> None:
        """Forget the client. The executions that it has asked for go on."""
        self._has_ended = True
        self._may_send.set()
        if self._unwatch is not None:
            self._unwatch()
        for task in self._tasks:
            task.cancel()

    def _cut_off(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.cut_off(reason)

    def _fall_behind(self, reason: str) -> None:
        """Give the client up, connected or not: from now on it would miss something."""
        self.is_behind = True
        self._cut_off(reason)

    async def _send(self, message: OutgoingMessage) -> None:
        """Send a message once, on the client's next connection if need be."""
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

    async def handle(self, frame: str | bytes, *, is_v1: bool) -> None:
        """Handle a message of the client; one that cannot be read ends the connection.

        Raises
        ------
        Disconnected
            If nobody waits for the answer any more.
        """
        try:
            message = read_message(frame, is_v1=is_v1)
        except InvalidRequest as error:
            self._cut_off(error.message)
            return
        await self._answer(message, self._handle)

    async def _answer(self, message: IncomingMessage, handle: Callable[[IncomingMessage], Awaitable[None]]) -> None:
        try:
            await handle(message)
        except ExecError as error:
            await self._refuse(message, error)

    async def _handle(self, message: IncomingMessage) -> None:
        access, kind = needed_rights(message), message.msg_type
        if access is None:
            raise Forbidden(f"{kind!r} on {message.channel!r} is not for clients of this API")
        if self._connection is None:
            raise Disconnected
        await self._connection.require(access)
        if kind == "execute_request":
            await self._execute(message)
        elif kind == "input_reply":
            await self._answer_input(message)
        elif kind == "interrupt_request":
            self._connection.count_recorded()
            await interrupt_kernel(self._engine, self._caller, self._session_id)
            await self._reply(message, {"status": "ok"})
        elif kind == "shutdown_request":
            self._start(self._answer(message, self._shut_down))
        elif kind == "comm_info_request" and not self._may_use_comms():
            await self._reply(message, {"status": "ok", "comms": {}})
        elif message.channel == "shell" and not kind.endswith("_request"):
            await self._send_comm(message)
        else:
            self._start(self._answer(message, self._ask))

    async def _execute(self, message: IncomingMessage) -> None:
        expressions = message.expressions()
        if expressions and self._has_approvals():
            raise PolicyDenied("'user_expressions' are refused under a policy with approvals: no person would see them")
        request = JupyterExecutionRequest(
            message.text("code"),
            # Without the right to answer, its code would wait in vain.
            allow_input=message.flag("allow_stdin", default=True) and "executions:control" in self._caller.scopes,
            store_history=message.flag("store_history", default=True) and not message.is_silent,
            metadata={"user_expressions": dict(expressions)} if expressions else {},  # so that its record has them
            user_expressions=expressions,
            is_silent=message.is_silent,
            stops_on_error=message.flag("stop_on_error", default=True),
            header=message.header,
        )
        # With the message's id as its key, a message that is sent again is not run again.
        execution = await self._engine.execute(self._caller, self._session_id, request, message.msg_id)
        try:
            self._display.add(execution, message)
        except ReadsTooSlowly:
            self._fall_behind("the client reads too slowly to follow the session")

    async def _answer_input(self, message: IncomingMessage) -> None:
        prompt = self._display.prompt
        # Some clients do not name the prompt that they answer.
        if prompt is None or message.parent_id not in ("", prompt.msg_id):
            raise NoInputRequested("no code that this client has sent waits for this input")
        await self._engine.answer_input(self._caller, prompt.execution_id, message.text("value"))
        self._display.prompt = None

    async def _ask(self, message: IncomingMessage) -> None:
        """Have the kernel answer a request."""
        if message.msg_type in _RUNS_CODE and self._has_approvals():
            raise PolicyDenied(
                f"{message.msg_type!r} can run code, such as imports, so it is refused under a policy with approvals"
            )
        is_history = message.msg_type == "history_request"
        content = limit_history_request(message.content) if is_history else message.content
        await self._send(make_status("busy", message.header))
        answer = await self._engine.messages.ask(
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
            self._shuts_down = True
            try:
                await self._engine.delete_session(self._caller, self._session_id)
            except BaseException:
                self._shuts_down = False
                raise
        await self._reply(message, {"status": "ok", "restart": message.is_restart})
        if self._shuts_down:
            await self._send_end("the client has shut the kernel down")

    async def _send_comm(self, message: IncomingMessage) -> None:
        if not self._may_use_comms():
            raise PolicyDenied(
                "comms, which widgets use, run code that is in no record; a policy with 'allow_comms' and without "
                "approvals lets clients use them"
            )
        await self._engine.messages.send_comm(
            self._caller, self._session_id, message.msg_type, message.content, message.metadata, message.header
        )

    def _has_approvals(self) -> bool:
        return any(policy.approval.mode != "never" for policy in self._caller.policies)

    def _may_use_comms(self) -> bool:
        return all(policy.allow_comms for policy in self._caller.policies) and not self._has_approvals()

    # --- answers ---

    async def _reply(self, message: IncomingMessage, content: Mapping[str, Any]) -> None:
        await self._send(make_status("busy", message.header))
        await self._send(OutgoingMessage(message.channel, message.reply_type, content, message.header))
        await self._send(make_status("idle", message.header))

    async def _refuse(self, message: IncomingMessage, error: ExecError) -> None:
        """Answer a request that is refused."""
        if self._connection is not None:
            self._connection.note_refusal(message.known_type, error)
        content = make_refusal(error)
        if message.channel == "stdin":  # an answer, which gets none
            await self._send(make_note(error.message, message.header))
            return
        await self._send(make_status("busy", message.header))
        if message.msg_type == "execute_request":  # clients show what is on iopub
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

    # --- what happens in the session ---

    def on_execution(self, execution: LiveExecution) -> None:
        """Show an execution, by whomever its code was sent."""
        try:
            self._display.add(execution)
        except ReadsTooSlowly:
            self._fall_behind("the client reads too slowly to follow the session")

    def on_record(self, record: Session) -> None:
        """Show that the kernel is gone. To JupyterLab, a status of a restart is that of a kernel that has died."""
        if record.state is SessionState.ENDED and not self._shuts_down:
            self._start(self._send_end(record.ended_reason or "the session has ended"))

    async def _send_end(self, reason: str) -> None:
        await self._send(make_status("dead", {}))
        self._cut_off(reason)

    def on_comm_output(self, message: KernelMessage, parent: Mapping[str, str]) -> None:
        """Show a message of a comm, or the output of its handler, if the caller may use comms."""
        if not self._may_use_comms():
            return
        outgoing = OutgoingMessage("iopub", message.msg_type, message.content, parent, message.metadata)
        if not self._comm_outbox.add(outgoing):
            self._fall_behind("the client reads too slowly to follow the session's widgets")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; a client with too much of that is given up."""
        if len(self._tasks) >= _MAX_TASKS or self._has_ended:
            work.close()
            self._fall_behind("too many requests and messages wait for this client")
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Disconnected):
            # A defect of ours. Without this, the client would wait for ever.
            self._engine.log.error("a client of a kernel could not be served", exc_info=error)
            self._fall_behind("the server failed; its log has the details")
