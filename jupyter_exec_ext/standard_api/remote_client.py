"""Client of a session's kernel: takes its requests to the session, and shows it what happens there.

What it gets comes from the executions' logs, which are read at its pace. So a client that stops reading costs no
memory, and one whose connection breaks gets the rest when it comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..engine.executions.live_execution import ExecutionHandle, LiveExecution, follow
from ..engine.sessions.execution_queue import ABORTED
from ..errors import ExecError, Forbidden, InvalidRequest, NoInputRequested, PolicyDenied
from ..models import (
    EndEvent,
    ExecutionState,
    InputRequestEvent,
    JupyterExecutionRequest,
    Session,
    SessionState,
    StateEvent,
)
from ..protocol.kernel_messages import KernelMessage
from ..protocol.records_json import event_from_json
from ..protocol.strict_json import loads_strict
from ..server.gate import Access
from .incoming_messages import IncomingMessage, chosen_history, limited_history, needed_rights, read_message
from .outgoing_messages import OutgoingMessage, end_messages, header_of, messages_of, note, refusal_content, status

# Requests that wait for the kernel, and messages of comms that wait for the client.
_MAX_PENDING = 200
# Executions that the client has not been shown yet. Beyond, it reads too slowly to follow.
_MAX_UNSEEN = 2000
# A kernel says at once that it has begun. One that never does must not hold back its output.
_BEGIN_SECONDS = 1.0


class Disconnected(Exception):
    """The client's connection has ended."""


class Connection(Protocol):
    """A client's WebSocket."""

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message, and return when there is room for more; raise `Disconnected` if the connection has ended."""

    async def require(self, access: Access) -> None:
        """Raise an error if the caller, or the deployment's user behind it, does not have these rights."""

    def cut_off(self, reason: str) -> None:
        """End the connection."""


class RemoteClient:
    """A client of the kernel of one session, through one connection after another.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    caller : Caller
        Who it is.
    session_id : str
        The session.
    """

    def __init__(self, engine: ExecEngine, caller: Caller, session_id: str) -> None:
        self._engine = engine
        self._caller = caller
        self._session_id = session_id
        self._connection: Connection | None = None
        self._is_connected = asyncio.Event()
        self._requests: dict[str, IncomingMessage] = {}  # of executions that this client has asked for, by their ids
        self._asking: str | None = None  # the execution of this client that waits for input
        self._is_ending = False  # by this client
        self._unseen: asyncio.Queue[ExecutionHandle] = asyncio.Queue()
        self._unseen_ids: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch: Callable[[], None] | None = None

    async def connect(self, connection: Connection, caller: Caller) -> None:
        """Use a connection from now on, in the place of the one before; raise as `KernelMessageService.watch`."""
        self._caller = caller
        if self._unwatch is None:
            self._unwatch = await self._engine.messages.watch(self._caller, self._session_id, self)
            self._spawn(self._show_executions())
        if self._connection is not None:
            self._connection.cut_off("the client has connected again")
        self._connection = connection
        self._is_connected.set()

    def disconnect(self, connection: Connection) -> bool:
        """Keep what comes for the client's next connection; return False if it has one already."""
        if self._connection is not connection:
            return False
        self._connection = None
        self._is_connected.clear()
        return True

    def end(self) -> None:
        """Forget the client. What it has asked for goes on."""
        if self._unwatch is not None:
            self._unwatch()
        for task in self._tasks:
            task.cancel()

    def _cut_off(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.cut_off(reason)

    async def _send(self, message: OutgoingMessage) -> None:
        """Send a message once, on the client's next connection if need be."""
        while True:
            await self._is_connected.wait()
            connection = self._connection
            assert connection is not None  # as long as the event is set
            try:
                await connection.send(message)
            except Disconnected:
                self.disconnect(connection)
            else:
                return

    # --- requests of the client ---

    async def handle(self, frame: str | bytes, *, is_v1: bool) -> None:
        """Handle a message of the client; one that cannot be read ends the connection."""
        try:
            message = read_message(frame, is_v1=is_v1)
        except InvalidRequest as error:
            self._cut_off(error.message)
            return
        await self._answer(message, self._handle(message))

    async def _answer(self, message: IncomingMessage, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ExecError as error:
            await self._refuse(message, error)

    async def _handle(self, message: IncomingMessage) -> None:
        access, kind = needed_rights(message), message.msg_type
        if access is None or self._connection is None:
            raise Forbidden(f"{kind!r} on {message.channel!r} is not for clients of this API")
        await self._connection.require(access)
        if kind == "execute_request":
            await self._execute(message)
        elif kind == "input_reply":
            await self._answer_input(message)
        elif kind == "interrupt_request":
            await self._engine.interrupt_session(self._caller, self._session_id)
            await self._reply(message, {"status": "ok"})
        elif kind == "shutdown_request":
            self._spawn(self._answer(message, self._shut_down(message)))
        elif kind == "comm_info_request" and not self._may_use_comms():
            await self._reply(message, {"status": "ok", "comms": {}})
        elif message.channel == "shell" and not kind.endswith("_request"):
            await self._send_comm(message)
        else:
            self._spawn(self._answer(message, self._ask(message)))

    async def _execute(self, message: IncomingMessage) -> None:
        is_silent = message.flag("silent", default=False)
        expressions = message.expressions()
        if expressions and self._has_approvals():
            raise PolicyDenied("'user_expressions' are refused under a policy with approvals: nobody would see them")
        request = JupyterExecutionRequest(
            message.text("code"),
            # Without the right to answer, its code would wait in vain.
            allow_input=message.flag("allow_stdin", default=True) and "executions:control" in self._caller.scopes,
            store_history=message.flag("store_history", default=True) and not is_silent,
            user_expressions=expressions,
            is_silent=is_silent,
            stops_on_error=message.flag("stop_on_error", default=True),
            header=message.header,
        )
        # With the message's id as its key, a message that is sent again is not run again.
        execution = await self._engine.execute(self._caller, self._session_id, request, message.msg_id)
        self._requests[execution.record.id] = message
        self._queue(execution)

    async def _answer_input(self, message: IncomingMessage) -> None:
        if self._asking is None:
            raise NoInputRequested("no code that this client has sent waits for input")
        await self._engine.answer_input(self._caller, self._asking, message.text("value"))
        self._asking = None

    async def _ask(self, message: IncomingMessage) -> None:
        """Have the kernel answer a request."""
        is_history = message.msg_type == "history_request"
        content = limited_history(message.content) if is_history else message.content
        await self._send(status("busy", message.header))
        answer = await self._engine.messages.ask(self._caller, self._session_id, message.msg_type, content)
        if is_history:
            answer = {**answer, "history": chosen_history(message.content, answer.get("history"))}
        await self._send(OutgoingMessage(message.channel, message.reply_type, answer, message.header))
        await self._send(status("idle", message.header))

    async def _shut_down(self, message: IncomingMessage) -> None:
        if message.is_restart:
            await self._engine.restart_session(self._caller, self._session_id)
        else:
            self._is_ending = True
            try:
                await self._engine.delete_session(self._caller, self._session_id)
            except ExecError:
                self._is_ending = False
                raise
        await self._reply(message, {"status": "ok", "restart": message.is_restart})
        if self._is_ending:
            await self._tell_end("the client has shut the kernel down")

    async def _send_comm(self, message: IncomingMessage) -> None:
        if not self._may_use_comms():
            raise PolicyDenied(
                "comms, which widgets use, run code that is in no record; a policy with 'allow_comms' and without "
                "approvals lets clients use them"
            )
        await self._engine.messages.send_comm(self._caller, self._session_id, message.msg_type, message.content)

    def _has_approvals(self) -> bool:
        return any(policy.approval.mode != "never" for policy in self._caller.policies)

    def _may_use_comms(self) -> bool:
        return all(policy.allow_comms for policy in self._caller.policies) and not self._has_approvals()

    # --- answers ---

    async def _reply(self, message: IncomingMessage, content: Mapping[str, Any]) -> None:
        await self._send(status("busy", message.header))
        await self._send(OutgoingMessage(message.channel, message.reply_type, content, message.header))
        await self._send(status("idle", message.header))

    async def _refuse(self, message: IncomingMessage, error: ExecError) -> None:
        """Answer a request that is refused."""
        content = refusal_content(error)
        if message.msg_type == "execute_request":  # clients show what is on iopub
            await self._send(OutgoingMessage("iopub", "error", content, message.header))
        if message.msg_type.endswith("_request"):
            await self._reply(message, content)
        else:
            await self._send(note(error.message, message.header))

    # --- executions, by whomever their code was sent ---

    def on_execution(self, execution: LiveExecution) -> None:
        """Show an execution when those before it were shown."""
        self._queue(execution)

    def _queue(self, execution: ExecutionHandle) -> None:
        if execution.record.id in self._unseen_ids:
            return
        if len(self._unseen_ids) >= _MAX_UNSEEN:
            self._cut_off("the client reads too slowly to follow the session")
            return
        self._unseen_ids.add(execution.record.id)
        self._unseen.put_nowait(execution)

    async def _show_executions(self) -> None:
        while True:
            execution = await self._unseen.get()
            try:
                await self._show(execution)
            except Exception:  # its log may be gone; the client cannot be shown it, and the next one can
                self._engine.log.exception("execution %s could not be shown to a client", execution.record.id)
                self._cut_off("the server failed to show an execution; its log has the details")
            finally:
                self._unseen_ids.discard(execution.record.id)

    async def _show(self, execution: ExecutionHandle) -> None:
        """Show one execution to its end, and reply to its request if it was this client's."""
        asked = execution.request if isinstance(execution, LiveExecution) else None
        request = self._requests.get(execution.record.id)
        header = request.header if request is not None else header_of(execution.record, asked)
        is_silent = isinstance(asked, JupyterExecutionRequest) and asked.is_silent
        async for batch in follow(execution.log):
            for entry in batch:
                # Of the end, the record is at hand, and the line may be long.
                event = None if entry.type == EndEvent.type else event_from_json(loads_strict(entry.line))
                if isinstance(event, StateEvent):
                    await self._show_state(execution, event.state, header, is_silent)
                    continue
                if isinstance(event, InputRequestEvent):
                    if request is None:  # the one who has sent the code answers
                        continue
                    self._asking = execution.record.id
                for shown in messages_of(event, header, is_silent=is_silent):
                    await self._send(shown)
        await self._show_end(execution, header)

    async def _show_state(
        self, execution: ExecutionHandle, state: ExecutionState, header: Mapping[str, Any], is_silent: bool
    ) -> None:
        if state is ExecutionState.AWAITING_APPROVAL:
            await self._send(status("busy", header))
            await self._send(note("This code waits for a person's approval.", header))
        elif state is ExecutionState.RUNNING:
            await self._send(status("busy", header))
            begun = await execution.begun(_BEGIN_SECONDS) if isinstance(execution, LiveExecution) else None
            count = begun or execution.record.execution_count or 0
            if not is_silent:
                content = {"code": execution.record.code, "execution_count": count}
                await self._send(OutgoingMessage("iopub", "execute_input", content, header))

    async def _show_end(self, execution: ExecutionHandle, header: Mapping[str, Any]) -> None:
        record = await execution.wait()
        values = execution.user_expressions if isinstance(execution, LiveExecution) else {}
        shown, reply = end_messages(record, header, values, is_aborted=record.reason == ABORTED)
        for message in shown:
            await self._send(message)
        if self._asking == record.id:
            self._asking = None
        request = self._requests.pop(record.id, None)
        if request is not None:
            await self._send(OutgoingMessage("shell", "execute_reply", reply, request.header))
        await self._send(status("idle", header))

    # --- the session, and its comms ---

    def on_record(self, record: Session) -> None:
        """Show that the kernel is restarted, or gone."""
        if record.state is SessionState.RESTARTING:
            self._spawn(self._send(status("restarting", {})))
        elif record.state is SessionState.ENDED and not self._is_ending:
            self._spawn(self._tell_end(record.ended_reason or "the session has ended"))

    async def _tell_end(self, reason: str) -> None:
        await self._send(status("dead", {}))
        self._cut_off(reason)

    def on_comm(self, message: KernelMessage) -> None:
        """Show a message of a comm, if the caller may use comms."""
        if self._may_use_comms():
            self._spawn(self._send(OutgoingMessage(message.channel, message.msg_type, message.content, {})))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; a client with too much of that is cut off."""
        if len(self._tasks) >= _MAX_PENDING:
            work.close()
            self._cut_off("too many requests and messages wait for this client")
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
