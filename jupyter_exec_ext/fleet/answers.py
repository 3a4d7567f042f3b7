"""Helpers of a pool's handlers: JSON answers, bodies, flags in the query, and the check of a scope."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ..errors import InvalidRequest, MissingScope, PayloadTooLarge
from ..protocol.strict_json import dump_bytes
from .callers import PoolCaller

#: A request that may be sent to several servers is kept whole until one has taken it.
MAX_KEPT_BODY_BYTES = 16 * 1024 * 1024
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def answer_json(value: Any, status: int = 200) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(status=status, body=dump_bytes(value), content_type="application/json")


def read_flag(request: web.Request, name: str) -> bool:
    """Return a boolean in the query, by default False; raise `InvalidRequest` if it is none."""
    flag = _FLAGS.get(request.query.get(name, "false").lower())
    if flag is None:
        raise InvalidRequest(f"{name!r} must be true or false")
    return flag


def require_scope(caller: PoolCaller, scope: str) -> None:
    """Raise `MissingScope` if a caller lacks a scope."""
    if scope not in caller.scopes:
        raise MissingScope(f"this needs the scope {scope!r}, which the token does not have")


async def read_body(request: web.Request) -> bytes:
    """Return the body of a request; raise `PayloadTooLarge` if it is too large to be kept."""
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > MAX_KEPT_BODY_BYTES:
            raise PayloadTooLarge(f"this request may have at most {MAX_KEPT_BODY_BYTES} bytes; upload files instead")
        pieces.append(piece)
    return b"".join(pieces)
