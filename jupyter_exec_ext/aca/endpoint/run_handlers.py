"""Runs of the ACA sessions' protocol."""

from __future__ import annotations

from tornado import web

from ...errors import ExecutionNotFound, InvalidRequest
from ...models import Execution, ExecutionRequest
from ...server.execution_handlers import ExecutionBase
from ..protocol.addresses import MAX_RUN_SECONDS, Family
from ..protocol.execution_results import metadata_of, result_of
from ..protocol.query import api_version_of
from ..protocol.run_requests import RunRequest, run_request_from_json
from ..protocol.run_results import run_result_to_json
from .aca_handler import ACAHandler

_OPERATION_ID = "operation-id"


class ACARunHandler(ACAHandler, ExecutionBase):
    """``/executions``, ``/code/execute`` and ``/python/execute``; each has its own form, whatever the api-version."""

    family = Family.FLAT

    @web.authenticated
    async def post(self) -> None:
        """Run code, and wait for its end unless the caller does not want to."""
        api_version = api_version_of(self.fields)
        request = run_request_from_json(self.json_body(), self.family)
        if request.asynchronous and self.family is Family.ENVELOPE:
            raise InvalidRequest("there are no asynchronous runs on this path, only on 'executions'")
        flat = self.family is Family.FLAT
        asked = ExecutionRequest(
            request.code,
            timeout_seconds=self._seconds(request),
            metadata=metadata_of(request, api_version if flat else None),
        )
        key = self.idempotency_key(_OPERATION_ID)
        identifier = self.identifier
        if not request.asynchronous:
            self.hold_stream()
        execution = await self.in_session(lambda sid: self.engine.execute(self.caller, sid, asked, key))
        if key is not None:
            self.set_header(_OPERATION_ID, key)
        if request.asynchronous:
            self._locate(execution.record, api_version)
        if request.asynchronous:
            await execution.durable()
        record = await execution.wait(0 if request.asynchronous else None)
        await self.answer_run(record, identifier, 202 if request.asynchronous else 200)

    def _seconds(self, request: RunRequest) -> float:
        """Return how long the code may run: what is asked for, lowered to what may be had, as the service does."""
        limits = [MAX_RUN_SECONDS, *(policy.max_execution_seconds for policy in self.caller.policies)]
        return min(limit for limit in (request.timeout_seconds, *limits) if limit is not None)

    def _locate(self, execution: Execution, api_version: str) -> None:
        query = {"identifier": self.identifier, "api-version": api_version}
        self.set_header("Operation-Location", self.url_of(f"executions/{execution.id}", query))
        self.set_header(_OPERATION_ID, self.request.headers.get(_OPERATION_ID) or execution.id)

    async def answer_run(self, execution: Execution, identifier: str, status: int) -> None:
        """Answer with what came of a run."""
        await self.answer_apart(run_result_to_json(result_of(execution, identifier), self.family), status)


class ACAEnvelopeRunHandler(ACARunHandler):
    """``/code/execute``"""

    family = Family.ENVELOPE


class ACAFirstRunHandler(ACAEnvelopeRunHandler):
    """``/python/execute``, of the first preview: asked in an envelope, answered without."""

    assumed_api_version = "2024-02-02-preview"

    async def answer_run(self, execution: Execution, identifier: str, status: int) -> None:
        """Answer with what came of a run."""
        told = run_result_to_json(result_of(execution, identifier), self.family)["properties"]
        await self.answer_apart({**told, "$id": "1"}, status)


class ACAExecutionHandler(ACAHandler):
    """``/executions/{eid}``"""

    @web.authenticated
    async def get(self, execution_id: str) -> None:
        """Read a run, as often as wanted, as long as its session lives."""
        session = await self.engine.named.find(self.caller, self.name)
        execution = await self.engine.get_execution(self.caller, execution_id)
        if session is None or execution.session_id != session.id:
            raise ExecutionNotFound(f"no execution {execution_id!r} in this session")
        await self.answer_apart(run_result_to_json(result_of(execution, self.identifier), Family.FLAT))
