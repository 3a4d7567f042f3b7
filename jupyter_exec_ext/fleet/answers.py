"""Helpers of a pool's handlers: JSON answers, flags in the query, and the check of a scope."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ..errors import InvalidRequest, MissingScope
from ..protocol.strict_json import dump_bytes
from .callers import PoolCaller

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
