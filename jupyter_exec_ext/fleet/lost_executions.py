"""Answers to requests for executions whose server is lost, in the form that the caller wants."""

from __future__ import annotations

import time

from aiohttp import web

from ..errors import OutputExpired
from ..models import EndEvent, Execution, ExecutionState
from ..protocol.records_json import event_to_json, to_json, utc_timestamp
from ..protocol.sse import MEDIA_TYPE, NDJSON_MEDIA_TYPE, encode_event
from ..protocol.strict_json import dump_bytes
from ..store.accepted_executions import AcceptedExecution
from .router import PREFIX


def answer_lost(request: web.Request, accepted: AcceptedExecution) -> web.StreamResponse:
    """Answer a request for an execution whose server is lost, in the form that the caller wants."""
    if "/outputs/" in request.path:
        raise OutputExpired("the server that had this output has ended or was given up")
    execution = _as_lost(accepted)
    accept = request.headers.get("Accept", "")
    is_stream = request.path.endswith("/events") or MEDIA_TYPE in accept or NDJSON_MEDIA_TYPE in accept
    location = {"Location": f"{request[PREFIX]}exec/v1/executions/{accepted.id}"}
    if not is_stream:
        return web.Response(body=dump_bytes(to_json(execution)), content_type="application/json", headers=location)
    read = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
    seq = (int(read) if read.isdecimal() and len(read) <= 16 else 0) + 1
    event = EndEvent(execution=execution)
    line = dump_bytes(event_to_json(event, seq, utc_timestamp(time.time())))
    if NDJSON_MEDIA_TYPE in accept:
        return web.Response(body=line + b"\n", content_type=NDJSON_MEDIA_TYPE, headers=location)
    return web.Response(body=b"".join(encode_event(seq, event.type, line)), content_type=MEDIA_TYPE, headers=location)


def _as_lost(accepted: AcceptedExecution) -> Execution:
    """Return the record of an execution whose server is lost: what the pool knows of it."""
    return Execution(
        accepted.id,
        accepted.session_id,
        ExecutionState.SERVER_LOST,
        "",
        utc_timestamp(accepted.accepted_at),
        finished_at=utc_timestamp(time.time()),
        reason=f"the pool's server {accepted.server} has ended or does not come back; the code may have run in part",
        session_state_preserved=False,
    )
