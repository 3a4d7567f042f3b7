"""Access matrix of a pool: every route with every kind of credentials, before a server that checks as a real one.

The server's checks come from the server's own route table, so the cells hold for the pool and a server together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.fleet import callers as callers_module
from jupyter_exec_ext.fleet.fleet import FleetServer
from jupyter_exec_ext.fleet.pool import Pool
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.protocol.record_ids import new_id
from jupyter_exec_ext.server.gate import Access
from jupyter_exec_ext.server.rights import READ, READ_TOKENS, RUN_CODE
from jupyter_exec_ext.server.routes import ROUTES
from tests.support.fleets import TOKEN, USER, pool_token, short_times

NAME = "w1"
BASE = f"/user/{USER}/{NAME}/"
LOAD = {"server_name": NAME, "draining": False, "sessions": 0, "running": 0, "queued": 0, "free_places": None}
LOAD |= {"pooled_kernels": 0, "descriptors_used": None, "descriptors_allowed": None, "kernels_pss_bytes": 0}
POLICIES = [{"name": "default", "isolation": "sandbox"}]
# What the pool answers an owner, or about nothing.
ANSWER = {"tokens": [], "policies": POLICIES, "sessions": [], "found": [], "executions": [], "complete": True}
USERS: dict[str, dict[str, Any]] = {
    "ada": {"name": "ada", "scopes": ["custom:exec:run"]},
    "bob": {"name": "bob", "scopes": ["custom:exec:run"]},
    "eve": {"name": "eve", "scopes": ["custom:exec:run"]},
    "scopeless": {"name": "carol", "scopes": ["self"]},
    "admin": {"name": "root", "scopes": [], "admin": True},
}
ADMIN = Access(None, "read", owner_only=True)
#: Paths of servers that a pool does not have, or has for the Hub's administrators.
NOT_SERVED = ("/drain", "/grants", "/events", "/secret")
OWN = {"/load", "/approvals", "/approvals/{execution_id}"}
ACA_RUN = "exec/aca/executions?identifier=agent&api-version=2025-10-02-preview"
ACA_CODES = {"Unauthorized": "unauthenticated", "Forbidden": "missing_scope"}
AGENTS_SCOPES = frozenset(ALL_SCOPES - {"tokens:create", "kernels:attach", "pool:read"})
GOOD = (200, "")
BODIES = {"/tokens": {"name": "made in the matrix", "scopes": ["files:read"]}}


@dataclass(frozen=True)
class Cell:
    path: str
    method: str
    access: Access
    is_served: bool = True
    is_for_admins: bool = False

    @property
    def needed(self) -> frozenset[str]:
        return frozenset({self.access.scope, self.access.and_scope} - {None})  # type: ignore[arg-type]

    @property
    def names_something(self) -> bool:
        return "{" in self.path


CELLS = [
    Cell(f"exec/v1{route.path}", method, access, not route.path.startswith(NOT_SERVED), route.path in OWN)
    for route in ROUTES
    if route.path != "/policies"
    for method, access in route.methods.items()
    if method != "HEAD"  # whose answers have no code to compare; it is forwarded as GET is
] + [
    Cell("exec/v1/policies", "GET", READ_TOKENS),  # for who creates tokens
    Cell("exec/v1", "GET", READ),
    Cell("", "GET", ADMIN, is_for_admins=True),
    Cell("metrics", "GET", ADMIN, is_for_admins=True),
    Cell(ACA_RUN, "POST", RUN_CODE),
    Cell("exec/mcp", "POST", RUN_CODE),
]


class GuardedServer:
    """A server of the pool that refuses by the real servers' table; it has sessions that are names."""

    def __init__(self) -> None:
        self.tokens: dict[str, tuple[str, frozenset[str]]] = {}
        self.owners: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix(BASE)
        if path == "exec/v1/ready":
            return web.json_response({"ready": True, "draining": False})
        scheme, _, secret = request.headers["Authorization"].partition(" ")
        assert scheme == "token"
        if secret == TOKEN:
            return await self._answer_owner(request, path, "")
        principal, scopes = self.tokens[secret]
        if path == "exec/v1/tokens":
            return await self._answer_owner(request, path, principal)
        if path == "exec/aca/session":  # whether it has the session of an identifier
            return refusal(404, "session_not_found")
        cell = next(cell for cell in CELLS if pattern(cell.path).fullmatch(path) and cell.method == request.method)
        if cell.access.owner_only:
            return refusal(403, "owner_only")
        if not cell.needed <= scopes:
            return refusal(403, "missing_scope")
        ids = re.findall(r"(?:ses|exe)_\w+", path)
        if any(not f"{principal}/".startswith(self.owners[each[4:]]) for each in ids):
            return refusal(404, "session_not_found")
        if request.method == "POST" and path.endswith(("sessions", "executions")):
            digits = ids[0][4:] if ids else new_id("ses", NAME)[4:]
            self.owners.setdefault(digits, f"{principal}/")
            kind = path.rpartition("/")[2]
            made = f"{kind[:3]}_{digits}"
            location = f"{BASE}exec/v1/{kind}/{made}"
            return web.json_response({"id": made}, status=201, headers={"Location": location})
        return web.json_response(ANSWER)

    async def _answer_owner(self, request: web.Request, path: str, above: str) -> web.Response:
        if path == "exec/v1/load":
            return web.json_response(LOAD)
        if (path, request.method) == ("exec/v1/tokens", "POST"):
            asked, secret = await request.json(), new_token()
            self.tokens[secret.text] = (f"{above}/{secret.id}".lstrip("/"), frozenset(asked["scopes"]))
            return web.json_response({"id": secret.id, "token": secret.text}, status=201)
        return web.json_response(ANSWER)


def pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path.partition("?")[0])))


def refusal(status: int, code: str) -> web.Response:
    return web.json_response({"code": code, "message": "no", "request_id": "r"}, status=status)


class OneServer:
    """A fleet with one server, which runs already."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def list(self) -> Sequence[FleetServer]:
        return [FleetServer(NAME, self._address, "now", is_ready=True)]

    async def start(self, name: str) -> None:
        raise AssertionError("one is enough")

    async def stop(self, name: str, *, removes: bool = True) -> None:
        raise AssertionError("it is needed")


async def ask_hub(text: str) -> Mapping[str, Any] | None:
    return {"kind": "user", "admin": False, **USERS[text]} if text in USERS else None


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "http://{}:{}/".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@dataclass
class Matrix:
    """The pool, and the things of callers."""

    http: aiohttp.ClientSession
    url: str
    routes: Counter[Any]
    app: web.Application
    issued: dict[frozenset[str], str] = field(default_factory=dict)
    things: dict[str, dict[str, str]] = field(default_factory=dict)

    async def call(self, method: str, path: str, token: str | None, body: Any = None) -> tuple[int, Any]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        json = body if body is not None else {} if method == "POST" else None
        async with self.http.request(method, self.url + path, headers=headers, json=json) as answer:
            is_json = answer.content_type == "application/json" and answer.status != 204
            return answer.status, await answer.json() if is_json else {}

    async def token_with(self, scopes: frozenset[str]) -> str:
        """Return a token that the pool has issued to ada, with these scopes."""
        if scopes not in self.issued:
            request = {"name": "agent", "scopes": sorted(scopes)}
            status, answer = await self.call("POST", "exec/v1/tokens", "ada", request)
            assert status == 201, answer
            self.issued[scopes] = answer["token"]
        return self.issued[scopes]

    async def things_of(self, token: str) -> dict[str, str]:
        """Return ids of a session of a caller and of its execution, and of a token of ada's."""
        if token not in self.things:
            status, answer = await self.call("POST", "exec/v1/sessions", token)
            assert status == 201, answer
            digits = answer["id"][4:]
            _, answer = await self.call("POST", "exec/v1/tokens", "ada", BODIES["/tokens"])
            things = {"session_id": f"ses_{digits}", "execution_id": f"exe_{digits}", "token_id": answer["id"]}
            self.things[token] = things
        return self.things[token]

    async def ask(self, cell: Cell, token: str | None, things: Mapping[str, str]) -> tuple[int, str]:
        path = re.sub(r"\{(\w+)\}", lambda match: things.get(match[1], "name"), cell.path)
        body = BODIES.get(cell.path.removeprefix("exec/v1"))
        status, answer = await self.call(cell.method, path, token, body if cell.method == "POST" else None)
        if status < 300:
            return GOOD
        code = answer.get("code") or ACA_CODES[answer["error"]["code"]]
        return status, str(code)


@pytest.fixture
async def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Matrix]:
    monkeypatch.setattr(callers_module, "_ATTEMPTS_AT_ONCE", 10_000)
    server, routes = web.Application(), Counter[Any]()
    server.router.add_route("*", "/{tail:.*}", GuardedServer().answer)

    @web.middleware
    async def count(request: web.Request, handler: Any) -> web.StreamResponse:
        routes[request.match_info.route] += 1
        return await handler(request)  # type: ignore[no-any-return]

    settings = ExecPool(state_directory=str(tmp_path), min_servers=1, max_servers=1)
    with short_times(monkeypatch):
        async with serving(server) as address:
            pool = Pool(settings, OneServer(f"{address.rstrip('/')}{BASE}"), ask_hub, pool_token)
            async with pool.running() as app:
                app.middlewares.insert(0, count)
                async with serving(app) as url, aiohttp.ClientSession() as http:
                    found = Matrix(http, url, routes, app)
                    while (await found.call("GET", "exec/v1/ready", None))[0] != 200:
                        await pool.checking
                    yield found


def expected_of_good(cell: Cell) -> tuple[int, str]:
    """Return the answer to a caller with all rights of a Hub token."""
    if not cell.is_served:
        return 404, "not_found"
    if cell.is_for_admins:
        return 403, "forbidden"
    return (403, "owner_only") if cell.access.owner_only else GOOD


async def credentials_for(matrix: Matrix, cell: Cell) -> AsyncIterator[tuple[str, str | None, Any, set[Any]]]:
    """Yield each kind of credentials with its token, the things to ask for, and the right answers."""
    if "{token_id}" in cell.path:  # it may end there
        matrix.things.pop("ada", None)
    theirs = await matrix.things_of("ada")
    for who, token in (("none", None), ("unknown Hub token", "unknown"), ("unknown issued token", new_token().text)):
        yield who, token, theirs, {(401, "unauthenticated")}
    yield "Hub token without a scope of the pool", "scopeless", theirs, {(403, "missing_scope")}
    good = expected_of_good(cell)
    yield "Hub token", "ada", theirs, {good}
    gone = {(404, f"{kind}_not_found") for kind in ("session", "execution", "token")}
    refused = {good} if good[0] == 404 else {*gone, (403, "forbidden"), (403, "missing_scope")}
    is_open = not cell.needed and not cell.access.owner_only and cell.path.startswith("exec/v1")
    is_admins = cell.is_served and (
        is_open or cell.is_for_admins or (cell.method == "GET" and cell.needed == {"tokens:create"})
    )
    yield "administrator without a scope of the pool", "admin", theirs, {GOOD} if is_admins else refused
    if cell.names_something and cell.is_served and not cell.is_for_admins:
        yield "Hub token, another's id", "bob", theirs, gone
        await matrix.things_of("eve")
        yield "Hub token that is on the server, another's id", "eve", theirs, {*gone, good} - {GOOD}
    if not cell.needed or not cell.is_served:
        return
    making = {"sessions:create", "executions:create"} if cell.names_something else set()
    if cell.needed <= AGENTS_SCOPES:
        token = await matrix.token_with(cell.needed | making)
        yield "right scopes", token, await matrix.things_of(token) if making else theirs, {good}
    # A token that is to have a session of its own can create one.
    missing = cell.needed - {"sessions:create"} if cell.names_something else cell.needed
    token = await matrix.token_with(AGENTS_SCOPES - missing)
    own = theirs if "sessions:create" in missing else await matrix.things_of(token)
    yield "wrong scopes", token, own, {good if cell.is_for_admins else (403, "missing_scope"), (403, "forbidden")}


async def test_every_cell_of_the_pools_access_matrix_is_right(matrix: Matrix) -> None:
    wrong, count = [], 0
    for cell in CELLS:
        async for who, token, things, expected in credentials_for(matrix, cell):
            count += 1
            found = await matrix.ask(cell, token, things)
            if found not in expected:
                wrong.append(f"{cell.method} {cell.path}, {who}: {found}, not {expected}")
    assert not wrong, "\n".join(wrong)
    assert count > 250
    unused = {route for route in matrix.app.router.routes() if route.method != "HEAD"} - matrix.routes.keys()
    assert not unused
