"""Handlers of executions: run, read, stream, cancel, answer input, approve."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from tornado import web

from ..engine.executions.live_execution import ExecutionHandle, follow
from ..engine.ports import EventLog, LogEntry
from ..errors import InvalidRequest
from ..models import EndEvent, Execution
from ..protocol.found_executions import found_to_json
from ..protocol.large_values import collect, encode_in_pieces
from ..protocol.records_json import before_execution, execution_in, once_to_json, summary_to_json, to_json
from ..protocol.request_parsing import (
    approval_answer_from_json,
    execution_request_from_json,
    fresh_run_from_json,
    input_from_json,
    packages_from_json,
)
from ..protocol.sse import KEEP_ALIVE, MEDIA_TYPE, NDJSON_MEDIA_TYPE, encode_event
from .gate import authorize
from .streaming import StreamingHandler

_MAX_LIST = 1000
_MAX_FOUND = 200
_MAX_QUERY_CHARS = 200
_MAX_SEQ = 2**53  # JavaScript's numbers are exact up to here
_KEY = re.compile(r"[!-~]{1,255}")
_WAIT = re.compile(r"\bwait\s*=\s*(\d{1,6})\b")
_MINIMAL = re.compile(r"\breturn\s*=\s*minimal\b")
# Longest wait for the finished record of an execution whose last event is in the log already.
_TO_THE_END_SECONDS = 60.0


class ExecutionBase(StreamingHandler):
    """Base of handlers that answer with an execution, or stream its events."""

    def wanted_stream(self) -> str | None:
        """Return the media type of an event stream, if the caller asks for one."""
        accept = self.request.headers.get("Accept", "")
        return next((kind for kind in (MEDIA_TYPE, NDJSON_MEDIA_TYPE) if kind in accept), None)

    def locate(self, execution: Execution) -> None:
        """Set the URL of the execution."""
        self.set_header("Location", self.exec_url(f"executions/{execution.id}"))

    def wait_seconds(self) -> float:
        """Return the ``wait`` of the ``Prefer`` header (RFC 7240); 0 without one."""
        match = _WAIT.search(self.preferences)
        return float(match[1]) if match else 0.0

    @property
    def responds_async(self) -> bool:
        """True if the caller wants an answer before the execution has ended: ``respond-async`` in ``Prefer``."""
        return "respond-async" in self.preferences

    def hold_if_waited_for(self) -> None:
        """Count a request to run code as a stream, unless it is answered at once.

        Raises
        ------
        PolicyLimitReached
            If a policy allows no more streams.
        """
        if self.wanted_stream() is not None or not self.responds_async or self.wait_seconds():
            self.hold_stream()

    @property
    def minimal(self) -> bool:
        """True if the caller wants no output twice: ``return=minimal`` in the ``Prefer`` header."""
        return _MINIMAL.search(self.preferences) is not None

    async def answer_with(
        self, record: Execution, status: int = 200, may_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Send an execution in the form that the caller prefers; its end once `may_end` has returned."""
        await self.answer_apart(once_to_json(record) if self.minimal else to_json(record), status, may_end)

    async def answer_for(self, execution: ExecutionHandle) -> None:
        """Answer a request to run code: with a stream, the result, or an accepted execution."""
        self.locate(execution.record)
        media_type = self.wanted_stream()
        if media_type is not None:
            # The answer names the execution, which must therefore survive a power failure from here on.
            await execution.durable()
            await self.stream(execution.log, 0, media_type, execution.wait)
            return
        if self.responds_async:
            self.set_header("Preference-Applied", "respond-async")
        record = await execution.outcome(self.wait_seconds() if self.responds_async else None)
        # The last event of a short log has the whole record as JSON, so this is not encoded again.
        if execution.log.end is not None:
            await self.send(execution_in(execution.log.end))
        elif record.state.finished:
            await self.answer_with(record, 200, execution.wait)
        else:
            await execution.durable()
            await self.answer_with(record, 202)

    async def stream(
        self, log: EventLog, after: int, media_type: str, ended: Callable[[], Awaitable[Execution]]
    ) -> None:
        """Send the log after a cursor to its end, as it grows; `ended` returns the finished record."""
        sse = media_type == MEDIA_TYPE
        async with self.streaming(media_type, "an event stream"):
            async for batch in follow(log, after, heartbeat_seconds=self.heartbeat_seconds):
                lines = [entry.line for entry in batch]
                # The last event of a long log has no outputs, since the events before it hold them. Only readers with
                # `return=minimal` join these themselves; others get the whole record.
                if batch and batch[-1].type == EndEvent.type and not (self.minimal or log.end):
                    lines[-1] = await asyncio.to_thread(_whole, lines[-1], await ended())
                parts = [p for entry, line in zip(batch, lines, strict=True) for p in _frame(entry, line, sse)]
                # An empty batch means that nothing came for the time of a heartbeat.
                await self.send_parts(parts or [KEEP_ALIVE if sse else b"\n"])

    def idempotency_key(self, header: str = "Idempotency-Key") -> str | None:
        """Return the request's idempotency key.

        Raises
        ------
        InvalidRequest
            If it is not 1 to 255 visible ASCII characters.
        """
        key = self.request.headers.get(header)
        if key is not None and not _KEY.fullmatch(key):
            raise InvalidRequest(f"{header!r} must be 1 to 255 visible ASCII characters")
        return key

    def cursor(self, log: EventLog) -> int:
        """Return the number of the last event that the caller has received."""
        header = self.request.headers.get("Last-Event-ID", "")
        after = self.int_argument("after", 0, least=0, most=_MAX_SEQ)
        if header:
            if not header.isdecimal() or len(header) > 16:
                raise InvalidRequest("'Last-Event-ID' must be the number of an event")
            after = int(header)
        if after > log.last_seq:
            raise InvalidRequest(f"the log has only {log.last_seq} events yet, and {after} was given as already read")
        return after


def _frame(entry: LogEntry, line: bytes, sse: bool) -> Iterable[bytes]:
    return encode_event(entry.seq, entry.type, line) if sse else (line, b"\n")


def _whole(end: bytes, execution: Execution) -> bytes:
    """Return the last event with an execution that has all outputs."""
    return b"".join([before_execution(end), *collect(encode_in_pieces(to_json(execution))), b"}"])


class SessionExecutionsHandler(ExecutionBase):
    """``/sessions/{sid}/executions``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """List a page of the session's executions, without their outputs."""
        limit = self.int_argument("limit", 100, least=1, most=_MAX_LIST)
        before, after = (self.get_query_argument(name, None) for name in ("before", "after"))
        executions = await self.engine.history.list(self.caller, session_id, limit, before, after)
        self.answer({"executions": [summary_to_json(execution) for execution in executions]})

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Run code: wait for the result, stream it, or answer at once."""
        request = execution_request_from_json(self.json_body())
        self.hold_if_waited_for()
        await self.answer_for(await self.engine.execute(self.caller, session_id, request, self.idempotency_key()))


class PackagesHandler(ExecutionBase):
    """``/sessions/{sid}/packages``"""

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Install packages, which is an execution: wait for the result, stream it, or answer at once."""
        packages = packages_from_json(self.json_body())
        self.hold_if_waited_for()
        installing = self.engine.packages.install(self.caller, session_id, packages, self.idempotency_key())
        await self.answer_for(await installing)


class ExecutionsHandler(ExecutionBase):
    """``/executions``"""

    @web.authenticated
    async def get(self) -> None:
        """Search the executions that the caller may see."""
        text = self.get_query_argument("query", "", strip=False)
        if len(text) > _MAX_QUERY_CHARS:
            raise InvalidRequest(f"'query' may have at most {_MAX_QUERY_CHARS} characters")
        limit = self.int_argument("limit", 50, least=1, most=_MAX_FOUND)
        before = self.get_query_argument("before", None)
        self.hold_stream()  # a policy bounds how many searches wait at a time
        found, complete = await self.engine.history.search(self.caller, text, before, limit, self.is_wanted)
        self.answer({"found": list(map(found_to_json, found)), "complete": complete})

    @web.authenticated
    async def post(self) -> None:
        """Run code in a fresh session, which ends with it: wait for the result, stream it, or answer at once."""
        session, request = fresh_run_from_json(self.json_body())
        await authorize(self, "write", "kernels")  # it makes a session
        key = self.idempotency_key()
        self.hold_if_waited_for()
        run = self.engine.fresh.run(self.caller, session, request, key, is_wanted=self.is_wanted)
        await self.answer_for(await run)

    def _token_ended(self) -> None:
        self.is_abandoned = True  # code that has not begun must not begin
        super()._token_ended()


class ExecutionHandler(ExecutionBase):
    """``/executions/{eid}``"""

    @web.authenticated
    async def get(self, execution_id: str) -> None:
        """Read an execution, as often as wanted; with ``Prefer: wait=N``, once it has ended or N seconds later."""
        wait_seconds = self.wait_seconds()
        if wait_seconds:
            self.hold_stream()
        record = await self.engine.get_execution(self.caller, execution_id, wait_seconds)
        await self.answer_with(record)


class ExecutionEventsHandler(ExecutionBase):
    """``/executions/{eid}/events``"""

    @web.authenticated
    async def get(self, execution_id: str) -> None:
        """Stream the event log from a cursor to its end."""
        self.hold_stream()
        log = await self.engine.open_log(self.caller, execution_id)
        ended = partial(self.engine.get_execution, self.caller, execution_id, _TO_THE_END_SECONDS)
        await self.stream(log, self.cursor(log), self.wanted_stream() or MEDIA_TYPE, ended)


class ExecutionCancelHandler(ExecutionBase):
    """``/executions/{eid}/cancel``"""

    @web.authenticated
    async def post(self, execution_id: str) -> None:
        """Cancel a queued or running execution."""
        record = await self.engine.cancel(self.caller, execution_id)
        await self.answer_with(record, 200 if record.state.finished else 202)


class ExecutionInputHandler(ExecutionBase):
    """``/executions/{eid}/input``"""

    @web.authenticated
    async def post(self, execution_id: str) -> None:
        """Answer ``input()``."""
        await self.engine.answer_input(self.caller, execution_id, input_from_json(self.json_body()))
        self.answer_empty()


class ApprovalsHandler(StreamingHandler):
    """``/approvals``"""

    @web.authenticated
    async def get(self) -> None:
        """List the executions that wait for approval, with all of their code."""
        waiting = [to_json(execution) for execution in self.engine.approvals.list(self.caller)]
        await self.answer_apart({"executions": waiting})


class ApprovalHandler(StreamingHandler):
    """``/approvals/{eid}``"""

    @web.authenticated
    async def post(self, execution_id: str) -> None:
        """Approve an execution, as it was sent or with other code, or reject it."""
        answer = approval_answer_from_json(self.json_body())
        self.answer(to_json(await self.engine.approvals.decide(self.caller, execution_id, answer)))
