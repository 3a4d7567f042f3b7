"""Handlers for runs in the ACA protocol, and the conversion of executions to results of runs."""

from __future__ import annotations

from typing import Any

from tornado import web

from ...errors import ExecutionNotFound, InvalidRequest
from ...models import Execution, ExecutionRequest, ExecutionState
from ...models.mime_bundles import pieces_of_bundle
from ...models.model_content import joined, named
from ...protocol.records_json import seconds_of
from ...server.execution_handlers import ExecutionBase
from ...server.streaming import StreamingHandler
from ..protocol.addresses import MAX_RUN_SECONDS, Family, api_version_of
from ..protocol.run_format import (
    RunRequest,
    RunResult,
    RunStatus,
    run_request_from_json,
    run_result_to_json,
    value_of,
)
from .aca_handler import ACAHandler

DEFAULT_STREAMS_LENGTH = 4096
_OPERATION_ID = "operation-id"
_SHORT_STREAMS_SINCE = "2025-10-02-preview"
_METADATA = "aca"
_PNG, _TEXT = "image/png", "text/plain"
_STATUS = {
    ExecutionState.AWAITING_APPROVAL: RunStatus.NOT_STARTED,
    ExecutionState.QUEUED: RunStatus.NOT_STARTED,
    ExecutionState.RUNNING: RunStatus.RUNNING,
    ExecutionState.OK: RunStatus.SUCCEEDED,
    ExecutionState.CANCELLED: RunStatus.CANCELED,
}
_ABORTED = (ExecutionState.KERNEL_DIED, ExecutionState.OOM_KILLED)


class ACARunHandler(ACAHandler, ExecutionBase):
    """``/executions``, ``/code/execute`` and ``/python/execute``; each has its own form, whatever the api-version."""

    family = Family.FLAT

    @web.authenticated
    async def post(self) -> None:
        """Run code, and wait for its end unless the request is asynchronous."""
        api_version = api_version_of(self.fields)
        request = run_request_from_json(self.json_body(), self.family)
        flat = self.family is Family.FLAT
        if request.asynchronous and not flat:
            raise InvalidRequest("there are no asynchronous runs on this path, only on 'executions'")
        asked = ExecutionRequest(
            request.code,
            timeout_seconds=self._limit_seconds(request),
            metadata=metadata_of(request, api_version if flat else None),
        )
        key = self.idempotency_key(_OPERATION_ID)
        identifier = self.identifier
        if not request.asynchronous:
            # Before `in_session`, so that a refusal makes no session.
            self.hold_stream()
        execution = await self.in_session(lambda sid: self.engine.execute(self.caller, sid, asked, key))
        if key is not None:
            self.set_header(_OPERATION_ID, key)
        if not request.asynchronous:
            await self.answer_run(await execution.wait(None), identifier, 200)
            return
        run_id = execution.record.id
        query = {"identifier": identifier, "api-version": api_version}
        self.set_header("Operation-Location", self.url_of(f"executions/{run_id}", query))
        self.set_header(_OPERATION_ID, self.request.headers.get(_OPERATION_ID) or run_id)
        # The answer promises that the run can be read later, so its record must survive a crash.
        await execution.durable()
        await self.answer_run(await execution.wait(0), identifier, 202)

    def _limit_seconds(self, request: RunRequest) -> float:
        """Return the time limit of the code: the lowest of the request, the policies and the service's maximum."""
        # More is lowered, not refused as in exec/v1: clients ask for what suits Azure.
        limits = [MAX_RUN_SECONDS, *(policy.max_execution_seconds for policy in self.caller.policies)]
        return min(limit for limit in (request.timeout_seconds, *limits) if limit is not None)

    async def answer_run(self, execution: Execution, identifier: str, status: int) -> None:
        """Answer with the result of a run."""
        await self.answer_apart(run_result_to_json(result_of(execution, identifier), self.family), status)


class ACAEnvelopeRunHandler(ACARunHandler):
    """``/code/execute``"""

    family = Family.ENVELOPE


class ACAFirstRunHandler(ACAEnvelopeRunHandler):
    """``/python/execute``, of the first preview: an envelope around the request, none around the answer."""

    assumed_api_version = "2024-02-02-preview"

    async def answer_run(self, execution: Execution, identifier: str, status: int) -> None:
        """Answer with the result of a run."""
        result = run_result_to_json(result_of(execution, identifier), self.family)["properties"]
        await self.answer_apart({**result, "$id": "1"}, status)


class ACAExecutionHandler(ACAHandler, StreamingHandler):
    """``/executions/{eid}``"""

    @web.authenticated
    async def get(self, execution_id: str) -> None:
        """Read a run, any number of times while its session lives."""
        session = await self.engine.named.find(self.caller, self.name)
        execution = await self.engine.get_execution(self.caller, execution_id)
        # A run of another session of the caller counts as unknown, too.
        if session is None or execution.session_id != session.id:
            raise ExecutionNotFound(f"no execution {execution_id!r} in this session")
        await self.answer_apart(run_result_to_json(result_of(execution, self.identifier), Family.FLAT))


# --- Executions as results. Pure. ---


def metadata_of(request: RunRequest, api_version: str | None) -> dict[str, Any]:
    """Return the options to keep in an execution's record, since its result can be read at any later time.

    Parameters
    ----------
    api_version : str or None
        None on paths of the envelope family, which shorten nothing.
    """
    length = request.streams_max_length
    if length is None and api_version is not None and api_version >= _SHORT_STREAMS_SINCE:
        length = DEFAULT_STREAMS_LENGTH
    options = {
        "asynchronous": request.asynchronous,
        "jupyter_format": request.jupyter_format,
        "streams_max_length": length,
    }
    return {_METADATA: options}


def result_of(execution: Execution, identifier: str) -> RunResult:
    """Return the state of a run, with its outputs once it has ended."""
    options = execution.metadata.get(_METADATA)
    options = options if isinstance(options, dict) else {}
    status = _STATUS.get(execution.state, RunStatus.FAILED)
    asynchronous = options.get("asynchronous") is True
    if not status.finished:
        return RunResult(status, id=execution.id, identifier=identifier, asynchronous=asynchronous)
    stdout, value_text, png = _join_outputs(execution)
    length = options.get("streams_max_length")
    return RunResult(
        status=status,
        stdout=_shorten(stdout, length),
        stderr=_shorten(execution.stderr + _failure_text(execution), length),
        value=value_of(value_text, png, jupyter_format=options.get("jupyter_format") is True),
        duration_ms=_duration_ms(execution),
        id=execution.id,
        identifier=identifier,
        asynchronous=asynchronous,
    )


def _join_outputs(execution: Execution) -> tuple[str, str | None, str | None]:
    """Return the printed text, the text of the value, and the picture that stands for the value.

    The protocol has no place for displayed data other than a picture. Its text goes where a terminal would show it.
    """
    printed: list[str] = []
    text = own = displayed = None
    for output in execution.outputs:
        kind, data = output.get("output_type"), output.get("data", {})
        if kind == "stream" and output.get("name") == "stdout":
            printed.append(_join_lines(output.get("text")))
        elif kind == "execute_result":
            text, own = _text_of(data), _picture_of(data)
        elif kind == "display_data":
            picture = _picture_of(data)
            displayed = picture or displayed
            if picture is None and data:
                printed.append(_text_of(data) + "\n")
    return "".join(printed), text, own or displayed


def _text_of(data: dict[str, Any]) -> str:
    """Return the ``text/plain`` of a value, or else the text that stands for it."""
    if _TEXT in data or _PNG in data:
        return _join_lines(data.get(_TEXT))
    return joined(map(named, pieces_of_bundle(data, None)))


def _picture_of(data: dict[str, Any]) -> str | None:
    return _join_lines(data.get(_PNG)) or None


def _failure_text(execution: Execution) -> str:
    state, error, reason = execution.state, execution.error, execution.reason or ""
    if state is ExecutionState.OK:
        return ""
    if state is ExecutionState.ERROR and error is not None:
        return error.traceback or f"{error.name}: {error.value}"
    if state is ExecutionState.TIMEOUT:
        # Azure's words, by which clients recognise a time limit.
        return f"The request timed out waiting for code execution to complete: {reason}"
    return f"Execution aborted: {reason}" if state in _ABORTED else reason or f"The run ended as {state}"


def _shorten(text: str, max_length: Any) -> str:
    """Return head and tail of a text that is too long, with a note between them on its length."""
    if not isinstance(max_length, int) or len(text) <= max_length:
        return text
    marker = f"\n[{len(text)} characters, shortened to {max_length}]\n"
    kept = max_length - len(marker)
    if kept < 2:  # no room for a head, the marker and a tail
        return text[:max_length]
    return text[: kept - kept // 2] + marker + text[len(text) - kept // 2 :]


def _duration_ms(execution: Execution) -> int:
    if execution.started_at is None or execution.finished_at is None:
        return 0
    # The difference is negative if the clock was set back.
    return max(0, round(1000 * (seconds_of(execution.finished_at) - seconds_of(execution.started_at))))


def _join_lines(text: Any) -> str:
    if isinstance(text, list):  # nbformat allows lists of lines
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
