"""Executions over HTTP: run, read, stream, cancel, answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from tornado import web
from tornado.iostream import StreamClosedError

from ..engine.executions.live_execution import ExecutionHandle
from ..engine.executions.log_reader import follow
from ..engine.ports import EventLog, LogEntry
from ..errors import InvalidRequest
from ..models import EndEvent, Execution
from ..protocol.large_json import collect, encode_in_pieces
from ..protocol.records_json import before_execution, execution_in, once_to_json, summary_to_json, to_json
from ..protocol.request_parsing import execution_request_from_json, fresh_run_from_json, input_from_json
from ..protocol.sse import KEEP_ALIVE, MEDIA_TYPE, NDJSON_MEDIA_TYPE, encode_event
from .gate import authorize
from .streaming import StreamingHandler

_MAX_LIST = 1000
_MAX_SEQ = 2**53
_KEY = re.compile(r"[!-~]{1,255}")
_WAIT = re.compile(r"\bwait\s*=\s*(\d{1,6})\b")
_MINIMAL = re.compile(r"\breturn\s*=\s*minimal\b")
_TO_THE_END_SECONDS = 60.0


class ExecutionBase(StreamingHandler):
    """What the execution handlers share."""

    def wanted_stream(self) -> str | None:
        """Return the media type of an event stream, if the caller asks for one."""
        accept = self.request.headers.get("Accept", "")
        return next((kind for kind in (MEDIA_TYPE, NDJSON_MEDIA_TYPE) if kind in accept), None)

    def locate(self, execution: Execution) -> None:
        """Say where the execution can be read again."""
        self.set_header("Location", self.exec_url(f"executions/{execution.id}"))

    def wait_seconds(self) -> float:
        """Return the ``wait`` of the ``Prefer`` header (RFC 7240); 0 without one."""
        match = _WAIT.search(self.request.headers.get("Prefer", "").lower())
        return float(match[1]) if match else 0.0

    @property
    def responds_async(self) -> bool:
        """Whether the caller wants an answer before the execution has ended: ``respond-async`` in ``Prefer``."""
        return "respond-async" in self.request.headers.get("Prefer", "").lower()

    def hold_if_waited_for(self) -> None:
        """Count a request to run code as a stream, unless it is answered at once.

        Raises
        ------
        PolicyLimitReached
        """
        if self.wanted_stream() is not None or not self.responds_async or self.wait_seconds():
            self.hold_stream()

    @property
    def minimal(self) -> bool:
        """Whether the caller wants no output twice: ``return=minimal`` in the ``Prefer`` header."""
        return _MINIMAL.search(self.request.headers.get("Prefer", "").lower()) is not None

    async def answer_with(
        self, record: Execution, status: int = 200, may_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Send an execution, as the caller wants it; its end once `may_end` has returned."""
        await self.answer_apart(once_to_json(record) if self.minimal else to_json(record), status, may_end)

    async def answer_for(self, execution: ExecutionHandle) -> None:
        """Answer a request to run code, in the way that it wants."""
        self.locate(execution.record)
        media_type = self.wanted_stream()
        if media_type is not None:
            await execution.durable()
            await self.stream(execution.log, 0, media_type, execution.wait)
            return
        if self.responds_async:
            self.set_header("Preference-Applied", "respond-async")
        record = await execution.outcome(self.wait_seconds() if self.responds_async else None)
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
        """Send the log from a cursor to its end, as it grows; `ended` returns the finished record."""
        sse = media_type == MEDIA_TYPE
        try:
            await self.begin_stream(media_type)
            async for batch in follow(log, after, heartbeat_seconds=self.heartbeat_seconds):
                lines = [entry.line for entry in batch]
                if batch and batch[-1].type == EndEvent.type and not (self.minimal or log.end):
                    lines[-1] = await asyncio.to_thread(_whole, lines[-1], await ended())
                parts = [p for entry, line in zip(batch, lines, strict=True) for p in _frame(entry, line, sse)]
                await self.send_parts(parts or [KEEP_ALIVE if sse else b"\n"])
            self.finish()
        except StreamClosedError:
            self.log.debug("the reader of an event stream is gone (request %s)", self.request_id)
        except Exception as error:
            self.end_stream_with(error, media_type)

    def idempotency_key(self, header: str = "Idempotency-Key") -> str | None:
        """Return the key under which a repetition of this request does nothing more.

        Raises
        ------
        InvalidRequest
        """
        key = self.request.headers.get(header)
        if key is not None and not _KEY.fullmatch(key):
            raise InvalidRequest(f"{header!r} must be 1 to 255 visible ASCII characters")
        return key

    def cursor(self, log: EventLog) -> int:
        """Return the number of the last event that the caller has."""
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
        """List the session's newest executions, without their outputs."""
        limit = self.int_argument("limit", 100, least=1, most=_MAX_LIST)
        executions = await self.engine.list_executions(self.caller, session_id, limit)
        self.answer({"executions": [summary_to_json(execution) for execution in executions]})

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Run code: wait for the result, stream it, or answer at once."""
        request = execution_request_from_json(self.json_body())
        self.hold_if_waited_for()
        await self.answer_for(await self.engine.execute(self.caller, session_id, request, self.idempotency_key()))


class ExecutionsHandler(ExecutionBase):
    """``/executions``"""

    @web.authenticated
    async def post(self) -> None:
        """Run code in a fresh session, which ends with it: wait for the result, stream it, or answer at once."""
        session, request = fresh_run_from_json(self.json_body())
        await authorize(self, "write", "kernels")  # as who makes a session needs
        key = self.idempotency_key()
        self.hold_if_waited_for()
        run = self.engine.fresh.run(self.caller, session, request, key, is_wanted=self._is_wanted)
        await self.answer_for(await run)

    _abandoned = False

    def _is_wanted(self) -> bool:
        return not self._abandoned

    def on_connection_close(self) -> None:
        """Begin nothing any more: who comes again, with the key, begins anew."""
        super().on_connection_close()
        self._abandoned = True

    def _token_ended(self) -> None:
        self._abandoned = True
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
        """Cancel an execution, queued or running."""
        record = await self.engine.cancel(self.caller, execution_id)
        await self.answer_with(record, 200 if record.state.finished else 202)


class ExecutionInputHandler(ExecutionBase):
    """``/executions/{eid}/input``"""

    @web.authenticated
    async def post(self, execution_id: str) -> None:
        """Answer ``input()``."""
        await self.engine.answer_input(self.caller, execution_id, input_from_json(self.json_body()))
        self.set_status(204)
        self.finish()
