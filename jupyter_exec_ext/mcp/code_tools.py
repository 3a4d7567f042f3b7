"""Tool `execute_code`: run code in a session, report its output while it runs, and return the record."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel, Field

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..engine.executions.live_execution import ExecutionHandle, follow
from ..errors import InvalidRequest
from ..models import Execution, ExecutionRequest, ExecutionState, StreamEvent, model_content
from ..protocol.records_json import bare_to_json
from ..protocol.strict_json import is_encodable
from .own_sessions import choose_session
from .resource_uris import file_uri
from .task_records import TASK_AFTER_SECONDS, TASKS, task_of
from .tool_call import Arguments, ToolCall, result

#: Time between two reports of progress, which carry the last of what was printed.
PROGRESS_SECONDS = 0.5
_HEARTBEAT_SECONDS = 1.0
_SHOWN_CHARACTERS = 300
_MAX_LINKS = 20
_DEFAULT_TIMEOUT_SECONDS = 60.0
#: Fields of a request's metadata that say which trace it belongs to (W3C Trace Context, and Baggage).
TRACE_FIELDS = ("traceparent", "tracestate", "baggage")
_MAX_TRACE_CHARACTERS = 1024


class ExecuteCode(Arguments):
    """Arguments of `execute_code`."""

    code: str = Field(description="Source code to run; for Python as in a notebook's cell, with magics.")
    session: str = Field(
        "",
        description="Id of the session to run it in. Without it, a new session is made, and its id is returned; pass "
        "that with the next call to keep variables.",
    )
    language: str = Field("", description="Language of the code, such as 'python' or 'bash'; by default the kernel's.")
    timeout_seconds: float = Field(
        _DEFAULT_TIMEOUT_SECONDS, gt=0, le=7 * 24 * 3600, description="The code is stopped after this run time."
    )


class RunResult(BaseModel):
    """Structured content of `execute_code`."""

    session: str = Field(description="Id of the session; pass it with the next call to keep variables.")
    is_new_session: bool = Field(description="Whether the session was made for this call.")
    text: str = Field(description="Output, errors and notes as text, shortened in the middle if it is long.")
    execution: dict[str, Any] = Field(
        description="Record of the run: id, state, error, files it wrote, times, and what was left out of the output."
    )


async def execute_code(call: ToolCall, asked: ExecuteCode) -> CallToolResult | dict[str, Any]:
    """Run code, and wait for its end; a call that is cancelled stops it.

    Returns
    -------
    CallToolResult or dict
        A task, as JSON, for a run that takes longer than `TASK_AFTER_SECONDS`, if the client supports tasks.
    """
    if not is_encodable(asked.code):
        raise InvalidRequest("'code' must be valid Unicode; it has half of a surrogate pair")
    chosen = await choose_session(call, asked.session)
    request = ExecutionRequest(
        asked.code,
        language=asked.language or None,
        timeout_seconds=asked.timeout_seconds,
        metadata=trace_of(call.context.meta),
    )
    handle = await call.engine.execute(call.caller, chosen.id, request)
    try:
        record = await wait_for_end(call, handle, TASK_AFTER_SECONDS if call.has_extension(TASKS) else None)
        if not record.state.finished:
            await handle.durable()
            return {"resultType": "task", **task_of(record)}
    except asyncio.CancelledError:
        cancel_in_background(call.engine, call.caller, handle.record.id)
        raise
    await call.note_changes(record.session_id, [info.path for info in record.files])
    notes = chosen.notes
    if chosen.is_new and call.client is None:
        notes = (*notes, f"Session: {chosen.id} (pass it as 'session' to keep variables)")
    return run_result(record, is_new_session=chosen.is_new, notes=notes)


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


async def wait_for_end(call: ToolCall, handle: ExecutionHandle, timeout_seconds: float | None) -> Execution:
    """Return the record once the run has ended, or as it is when the time is up.

    Meanwhile the last lines of what is printed are reported, if the client wants that.
    """
    if progress_token_from_params(call.context.params) is None:
        return await handle.wait(timeout_seconds)
    reporting = asyncio.create_task(_report_progress(call, handle))
    try:
        return await handle.wait(timeout_seconds)
    finally:
        reporting.cancel()


async def _report_progress(call: ToolCall, handle: ExecutionHandle) -> None:
    began = reported = time.monotonic()
    printed = shown = ""
    async for batch in follow(handle.log, heartbeat_seconds=_HEARTBEAT_SECONDS):
        for entry in batch:
            if entry.type == StreamEvent.type:
                printed = (printed + json.loads(entry.line)["text"])[-_SHOWN_CHARACTERS:]
        now = time.monotonic()
        if printed != shown and now - reported >= PROGRESS_SECONDS:
            await call.context.session.report_progress(round(now - began, 3), message=printed)
            reported, shown = now, printed


def run_result(record: Execution, *, is_new_session: bool = False, notes: tuple[str, ...] = ()) -> CallToolResult:
    """Return what a run gave: texts and pictures, links to the files that it wrote, and its record."""
    content: list[ContentBlock] = []
    for part in record.to_content():
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
    text = "\n".join([record.to_text(), *notes])
    data = RunResult(session=record.session_id, is_new_session=is_new_session, text=text, execution=fields)
    return result(data, content, is_error=record.state is not ExecutionState.OK)
