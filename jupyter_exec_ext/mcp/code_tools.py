"""Tool `execute_code`: run code in a session, report its output while it runs, and return the record."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.types import (
    CallToolResult,
    ContentBlock,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel, Field

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..engine.executions.live_execution import follow
from ..engine.ports import EventLog
from ..errors import ExecError, InvalidRequest
from ..models import Execution, ExecutionRequest, ExecutionState, StateEvent, StreamEvent, model_content
from ..protocol.records_json import bare_to_json
from ..protocol.strict_json import is_encodable
from .caller_time_limits import choose_shortest
from .output_truncation import truncate_outputs
from .questions import Question, answer_question, can_ask, wait_for_question
from .resource_uris import file_uri
from .session_choice import choose_session
from .task_records import TASK_AFTER_SECONDS, TASKS, task_of
from .tool_call import Arguments, ToolCall, ToolResult, make_result

#: Time between two reports of progress, which carry the last of what was printed.
PROGRESS_SECONDS = 0.5
_SHOWN_CHARACTERS = 300
_MAX_LINKS = 20
_DEFAULT_TIMEOUT_SECONDS = 60.0
_LONGEST_SECONDS = 7 * 24 * 3600.0
_WAITS_FOR_APPROVAL = "The code waits for a person's approval, in JupyterLab."
#: Fields of a request's metadata that say which trace it belongs to (W3C Trace Context, and Baggage).
TRACE_FIELDS = ("traceparent", "tracestate", "baggage")
_MAX_TRACE_CHARACTERS = 1024


async def _return_at_once() -> None:
    pass


class ExecuteCodeArguments(Arguments):
    """Arguments of `execute_code`."""

    code: str = Field(description="Source code to run; for Python as in a notebook's cell, with magics.")
    session: str = Field(
        "",
        description="Id of the session to run it in. Without it, a new session is made, and its id is returned; pass "
        "that with the next call to keep variables.",
    )
    kernel_name: str = Field(
        "", description="Kernelspec of a new session, such as 'python3' or 'ir'; by default the server's."
    )
    language: str = Field("", description="Language of the code, such as 'python' or 'bash'; by default the kernel's.")
    timeout_seconds: float = Field(
        0.0,
        ge=0,
        le=_LONGEST_SECONDS,
        description="The code is stopped after this run time; by default after 60 s, or earlier if a policy says so.",
    )


class RunResult(BaseModel):
    """Structured content of `execute_code`."""

    session: str = Field(description="Id of the session; pass it with the next call to keep variables.")
    is_new_session: bool = Field(description="Whether the session was made for this call.")
    text: str = Field(description="Output, errors and notes as text, shortened in the middle if it is long.")
    execution: dict[str, Any] = Field(
        description="Record of the run: id, state, error, files it wrote, times, and what was left out of the output."
    )


@dataclass(frozen=True)
class Run:
    """A run that a call waits for.

    Parameters
    ----------
    record : Execution
        As it was accepted.
    wait : callable
        Returns the record once the run has ended, or as it is when the time is up; takes seconds or None.
    durable : callable
        Returns once the run would survive a power failure.
    asked_seq : int
        Number of the event whose question the client's user has seen.
    """

    record: Execution
    log: EventLog
    wait: Callable[[float | None], Awaitable[Execution]]
    durable: Callable[[], Awaitable[None]] = _return_at_once
    asked_seq: int = 0
    is_new_session: bool = False
    notes: tuple[str, ...] = ()

    @property
    def execution_id(self) -> str:
        """Id of the execution."""
        return self.record.id

    def to_input_required(self, question: Question) -> InputRequiredResult:
        """Return the result that asks the client's user; the client sends the state back with the answer."""
        state = {
            "execution": self.execution_id,
            "kind": question.kind,
            "seq": question.seq,
            "is_new_session": self.is_new_session,
            "notes": self.notes,
        }
        return InputRequiredResult(
            input_requests={question.key: question.to_request()}, request_state=json.dumps(state)
        )


async def execute_code(call: ToolCall, arguments: ExecuteCodeArguments) -> ToolResult:
    """Run code, and wait for its end; a call that is cancelled stops it.

    Returns
    -------
    CallToolResult, InputRequiredResult or dict
        A question, with which the client calls again (revision 2026-07-28); or a task, as JSON, for a run that takes
        longer than `TASK_AFTER_SECONDS`, if the client supports tasks.
    """
    is_answer = call.params.request_state is not None
    # Shielded: cancelled halfway, it would leave a session or an execution that nothing ends.
    starting = call.engine.background.start(_resume(call) if is_answer else _start(call, arguments))
    try:
        run = await asyncio.shield(starting)
        result_ = await wait_and_ask(call, run)
    except asyncio.CancelledError:
        call.engine.background.start(_stop(call, starting))
        raise
    if not isinstance(result_, Execution):
        return result_
    await call.note_changes(result_.session_id, [info.path for info in result_.files])
    return make_run_result(result_, is_new_session=run.is_new_session, notes=run.notes)


async def _stop(call: ToolCall, starting: asyncio.Task[Run]) -> None:
    """Stop the code of a cancelled call, also if it has not begun yet."""
    with suppress(ExecError):  # it did not begin
        run = await starting
        if run.is_new_session and call.client_state is None:  # its client does not know its id
            await call.engine.sessions.end(run.record.session_id, "its MCP client was gone")
        else:
            await call.engine.cancel(call.caller, run.execution_id)


async def _start(call: ToolCall, arguments: ExecuteCodeArguments) -> Run:
    if not is_encodable(arguments.code):
        raise InvalidRequest("'code' must be valid Unicode; it has half of a surrogate pair")
    chosen = await choose_session(call, arguments.session, arguments.kernel_name)
    request = ExecutionRequest(
        arguments.code,
        language=arguments.language or None,
        timeout_seconds=arguments.timeout_seconds
        or choose_shortest(_DEFAULT_TIMEOUT_SECONDS, (policy.max_execution_seconds for policy in call.caller.policies)),
        metadata=trace_of(call.context.meta),
        allow_input=can_ask(call.context),
    )
    handle = await call.engine.execute(call.caller, chosen.id, request)
    notes = chosen.notes
    if chosen.is_new and call.client_state is None:
        notes = (*notes, f"Session: {chosen.id} (pass it as 'session' to keep variables)")
    return Run(handle.record, handle.log, handle.wait, handle.durable, is_new_session=chosen.is_new, notes=notes)


async def _resume(call: ToolCall) -> Run:
    """Return the run that an earlier call of the same client has started, after its user has answered."""
    state = json.loads(call.params.request_state or "")  # ours: the SDK has checked its seal
    execution_id, kind = state["execution"], state["kind"]
    answers = call.params.input_responses or {}
    answer = answers.get(f"{kind}-{state['seq']}")
    if isinstance(answer, ElicitResult):
        await answer_question(call.engine, call.caller, execution_id, kind, answer)
    record = await call.engine.get_execution(call.caller, execution_id)
    log = await call.engine.open_log(call.caller, execution_id)

    async def wait(timeout_seconds: float | None) -> Execution:
        seconds = _LONGEST_SECONDS if timeout_seconds is None else timeout_seconds
        return await call.engine.get_execution(call.caller, execution_id, seconds)

    return Run(
        record,
        log,
        wait,
        asked_seq=state["seq"],
        is_new_session=state["is_new_session"],
        notes=tuple(state["notes"]),
    )


def trace_of(meta: Any) -> dict[str, str]:
    """Return the trace context of a request's ``_meta``, for the metadata of its execution."""
    found = {name: meta.get(name) for name in TRACE_FIELDS} if isinstance(meta, dict) else {}
    return {
        name: value for name, value in found.items() if isinstance(value, str) and len(value) <= _MAX_TRACE_CHARACTERS
    }


def cancel_in_background(engine: ExecEngine, caller: Caller, execution_id: str) -> None:
    """Stop an execution; for a task that is being cancelled itself, or an answer that does not wait for it."""

    async def cancel() -> None:
        await engine.cancel(caller, execution_id)

    engine.background.start(cancel())


async def wait_and_ask(call: ToolCall, run: Run) -> Execution | InputRequiredResult | dict[str, Any]:
    """Return the finished record, or what the client has to do before there is one.

    Meanwhile the last lines of what is printed are reported, if the client wants that, and its user is arguments.
    """
    timeout_seconds = TASK_AFTER_SECONDS if call.has_extension(TASKS) else None
    async with _background_tasks(call, run) as question:
        waiting = asyncio.ensure_future(run.wait(timeout_seconds))
        either: list[asyncio.Future[Any]] = [waiting, question]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if question.done() and not waiting.done():
                return run.to_input_required(question.result())
            record = await waiting
        finally:
            waiting.cancel()
    if not record.state.finished:
        await run.durable()
        return {"resultType": "task", **task_of(record)}
    return record


@asynccontextmanager
async def _background_tasks(call: ToolCall, run: Run) -> AsyncIterator[asyncio.Future[Question]]:
    """Report progress and ask the client's user, within the block.

    Yields
    ------
    asyncio.Future of Question
        Done once there is a question that has to be the call's result (revision 2026-07-28).
    """
    question: asyncio.Future[Question] = asyncio.get_running_loop().create_future()
    helpers = []
    if progress_token_from_params(call.context.params) is not None:
        helpers.append(asyncio.create_task(_report_progress(call, run)))
    if can_ask(call.context):
        ask = _ask_in_session(call, run) if call.client is not None else _find_question(call, run, question)
        helpers.append(asyncio.create_task(ask))
    try:
        yield question
    finally:
        for helper in helpers:
            helper.cancel()


async def _find_question(call: ToolCall, run: Run, found: asyncio.Future[Question]) -> None:
    question = await wait_for_question(call.caller, run.record, run.log, run.asked_seq)
    if question is not None:
        found.set_result(question)


async def _ask_in_session(call: ToolCall, run: Run) -> None:
    """Ask the user of a client of the handshake revisions, which answers while the call goes on."""
    seq = 0
    while (question := await wait_for_question(call.caller, run.record, run.log, seq)) is not None:
        seq = question.seq
        answer = await call.context.session.elicit_form(
            question.message, question.schema, related_request_id=call.context.request_id
        )
        await answer_question(call.engine, call.caller, run.execution_id, question.kind, answer)


async def _report_progress(call: ToolCall, run: Run) -> None:
    began = reported = time.monotonic()
    printed = shown = ""
    async for batch in follow(run.log, heartbeat_seconds=PROGRESS_SECONDS):
        for entry in batch:
            if entry.type == StreamEvent.type:
                printed = (printed + json.loads(entry.line)["text"])[-_SHOWN_CHARACTERS:]
            elif entry.type == StateEvent.type and b'"awaiting_approval"' in entry.line:
                printed = _WAITS_FOR_APPROVAL
        now = time.monotonic()
        if printed != shown and now - reported >= PROGRESS_SECONDS:
            await call.context.session.report_progress(round(now - began, 3), message=printed)
            reported, shown = now, printed


def make_run_result(record: Execution, *, is_new_session: bool = False, notes: tuple[str, ...] = ()) -> CallToolResult:
    """Return what a run gave: texts and pictures, links to the files that it wrote, and its record."""
    shown = truncate_outputs(record)
    content: list[ContentBlock] = []
    for part in shown.to_content():
        if isinstance(part, model_content.TextContent):
            content.append(TextContent(text=part.text))
        else:
            content.append(ImageContent(data=part.base64, mime_type=part.mime_type))
    content += [
        ResourceLink(
            name=info.path, uri=file_uri(record.session_id, info.path), mime_type=info.mime_type, size=info.size_bytes
        )
        for info in record.files[:_MAX_LINKS]
    ]
    content += [TextContent(text=note) for note in notes]
    fields = bare_to_json(record)
    del fields["code"]  # the model has just written it
    text = "\n".join([shown.to_text(), *notes])
    data = RunResult(session=record.session_id, is_new_session=is_new_session, text=text, execution=fields)
    return make_result(data, content, is_error=record.state is not ExecutionState.OK)
