"""The client's logic for ACA sessions: which requests an operation makes and what their answers mean."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ...client.api.request_exchange import segment
from ...client.api.steps import Operation, Pause
from ...errors import ConnectionLost, NotFound, UnexpectedAnswer
from ..protocol.addresses import MAX_RUN_SECONDS, SESSION_API_VERSION, family_of
from ..protocol.run_requests import RUN_PATHS, RunRequest, run_request_to_json
from ..protocol.run_results import RunResult, run_result_from_json
from ..protocol.session_info import ACASessionInfo, session_info_from_json
from .pool_transport import ACATransport, Again, Call, parsed

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ACAApi:
    """The operations on sessions; `aca_files` has those on files."""

    transport: ACATransport

    @property
    def _session_transport(self) -> ACATransport:
        """Sessions are asked for in the version that has them, whatever the runs' one."""
        return ACATransport(self.transport.endpoint, SESSION_API_VERSION, self.transport.times)

    def _get(self, transport: ACATransport, path: str, identifier: str | None) -> Operation[Any]:
        call = Call("GET", transport.url(path, identifier), transport.times.request_seconds)
        return parsed((yield from transport.call(call)))

    def run(self, identifier: str, request: RunRequest) -> Operation[RunResult]:
        """Run code once, or not at all."""
        transport = self.transport
        body = run_request_to_json(request, transport.api_version)
        url = transport.url(RUN_PATHS[family_of(transport.api_version)], identifier)
        seconds = (request.timeout_seconds or MAX_RUN_SECONDS) + transport.times.grace_seconds
        ends_at = time.monotonic() + transport.times.max_wait_seconds + seconds
        reply = yield from transport.call(Call("POST", url, seconds, Again.REFUSED, "the code may have run", body))
        result = run_result_from_json(parsed(reply))
        while not result.status.finished:
            if not result.id or time.monotonic() > ends_at:
                raise ConnectionLost("the service had not ended the run in time; the code may still be running")
            yield Pause(_LOOK_SECONDS)
            path = f"executions/{segment(result.id)}"
            result = run_result_from_json((yield from self._get(transport, path, identifier)))
        return result

    def delete_session(self, identifier: str) -> Operation[None]:
        """End a session; one that is not there is no error."""
        transport = self._session_transport
        call = Call("DELETE", transport.url("session", identifier), transport.times.request_seconds)
        try:
            yield from transport.call(call)
        except NotFound:
            return

    def session(self, identifier: str) -> Operation[ACASessionInfo]:
        """Ask when a session ends."""
        return session_info_from_json((yield from self._get(self._session_transport, "session", identifier)))

    def metadata(self) -> Operation[dict[str, Any]]:
        """Ask what the pool's sessions are made of."""
        data = yield from self._get(self._session_transport, "metadata", None)
        if not isinstance(data, dict):
            raise UnexpectedAnswer("the pool's metadata is not a JSON object")
        return data
