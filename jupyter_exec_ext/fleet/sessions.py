"""Requests for sessions and executions: each goes to the server that has what it names, or to the best one."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any

from aiohttp import web
from multidict import CIMultiDictProxy

from ..errors import (
    ExecError,
    ExecutionNotFound,
    InvalidRequest,
    PoolFull,
    PrincipalFull,
    ServerUnreachable,
    SessionEnded,
    SessionNotFound,
    Unavailable,
)
from ..protocol.strict_json import dumps
from .answers import read_body
from .callers import PoolCaller, require_runner
from .lost_executions import answer_lost
from .metrics import PoolMetrics
from .pool_server import AWAY, Reservation, Server, ServerState
from .pool_settings import ExecPool
from .router import NothingSent, Refused, Router, unreachable
from .server_keeper import Keeper
from .server_lookup import RunKey, ServerLookup, server_in
from .server_tokens import ServerTokens
from .server_watch import PROBE_SECONDS

#: Refusals of one server, after which another one is asked.
TRY_NEXT = frozenset({"draining", "shutting_down", "out_of_resources", "too_many_sessions", "too_many_kernels"})
_WAIT = re.compile(r"\bwait\s*=\s*(\d{1,6})\b")
_MAX_WAIT_SECONDS = 600.0
_KEY = re.compile(r"[!-~]{1,255}")


class SessionRequests:
    """Handlers of ``sessions`` and ``executions``, and what those of other protocols need to place theirs.

    Parameters
    ----------
    settings : ExecPool
        The pool's settings.
    keeper : Keeper
        The servers.
    tokens : ServerTokens
        The callers' tokens there.
    lookup : ServerLookup
        Which server has what.
    router : Router
        Forwards requests.
    metrics : PoolMetrics
        Counts.

    Attributes
    ----------
    is_open : bool
        Whether the servers have been checked; before that, there are no new sessions.
    """

    def __init__(
        self,
        settings: ExecPool,
        keeper: Keeper,
        tokens: ServerTokens,
        lookup: ServerLookup,
        router: Router,
        metrics: PoolMetrics,
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._tokens = tokens
        self._lookup = lookup
        self._router = router
        self._metrics = metrics
        # Sessions placed for each account since they were last counted, and those of then.
        self._placed: Counter[str] = Counter()

        self.is_open = False

    async def open_when(self, checked: Coroutine[Any, Any, None]) -> None:
        """Take no new sessions before the servers have been checked."""
        await checked
        self.is_open = True

    @property
    def is_ready(self) -> bool:
        """True if sessions can be placed: on a ready server, or on an account's own one, which is started for them."""
        has_server = any(server.state is ServerState.READY for server in self._keeper.servers.values())
        return self.is_open and self._keeper.is_ready.is_set() and (has_server or self._settings.tenancy == "own")

    # --- handlers ---

    async def create_session(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``POST /sessions``"""
        require_runner(caller)
        return await self.create_on_best_server(
            request, caller, await read_body(request), RunKey(caller.principal, "", "")
        )

    async def run_fresh(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``POST /executions``"""
        require_runner(caller)
        body = await read_body(request)
        key = RunKey(caller.principal, "", _idempotency_key(request))
        async with self._lookup.turn(key):
            known = await self._lookup.server_of_run(key)
            if known is None:
                return await self.create_on_best_server(request, caller, body, key)
        server = self._keeper.servers.get(known)
        if server is not None and server.state not in AWAY:
            return await self._run(request, caller, server, key, body)
        self._require_lost(server)
        lost = await self._lookup.lost_run(key)
        assert lost is not None  # `server_of_run` has found it
        return answer_lost(request, lost)

    async def of_session(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``/sessions/{session_id}`` and all below it."""
        session_id = request.match_info["session_id"]
        is_run = request.method == "POST" and request.match_info.get("tail") == "executions"
        key = RunKey(caller.principal, session_id, _idempotency_key(request) if is_run else "")
        name = server_in(session_id)
        if name is None:
            raise SessionNotFound(f"there is no session {session_id!r}")
        server = self._keeper.servers.get(name)
        if server is None or server.state in AWAY:
            self._require_lost(server)
            lost = await self._lookup.lost_run(key)
            if lost is not None:
                return answer_lost(request, lost)
            raise SessionEnded(f"the session has ended: its server {name} has ended or was given up; start another one")
        if not await self._tokens.has_token(server, caller):
            raise SessionNotFound(f"there is no session {session_id!r}")
        if is_run:
            return await self._run(request, caller, server, key, None)
        response = await self.forward(request, caller, server)
        if request.method == "DELETE" and response.status < 400:
            self._keeper.refresh(server.name)  # somebody may wait for its place
        return response

    async def of_execution(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``/executions/{execution_id}`` and all below it."""
        execution_id = request.match_info["execution_id"]
        name = server_in(execution_id)
        server = self._keeper.servers.get(name or "")
        if name is None or (server is not None and server.state not in AWAY):
            if server is None or not await self._tokens.has_token(server, caller):
                raise ExecutionNotFound(f"there is no execution {execution_id!r}")
            return await self.forward(request, caller, server)
        self._require_lost(server)
        lost = await self._lookup.lost_execution(execution_id)
        if lost is None or not caller.may_see(lost.principal):
            raise ExecutionNotFound(f"there is no execution {execution_id!r}")
        return answer_lost(request, lost)

    # --- what other protocols need, too ---

    async def forward(
        self,
        request: web.Request,
        caller: PoolCaller,
        server: Server,
        *,
        body: bytes | None = None,
        refusals: Collection[str] | None = None,
    ) -> web.StreamResponse:
        """Forward a request to a server in the caller's name; with `refusals`, raise as `Router.forward`."""
        began = time.monotonic()
        try:
            secret = await self._tokens.secret(server, caller)
            return await self._router.forward(request, server, secret, body=body, refusals=refusals or ())
        except NothingSent:
            if refusals is not None:
                raise
            raise unreachable(server) from None
        finally:
            self._metrics.forward_seconds.observe(time.monotonic() - began)

    async def _run(
        self, request: web.Request, caller: PoolCaller, server: Server, key: RunKey, body: bytes | None
    ) -> web.StreamResponse:
        """Forward a request to run code, and remember its execution."""
        note = partial(self._note_answer, server, key)
        is_new = False
        try:
            secret = await self._tokens.secret(server, caller)
            is_new = self._lookup.note_sent(key, server.name)
            return await self._router.forward(request, server, secret, body=body, on_answer=note)
        except NothingSent:
            if is_new:  # an earlier request with the same key may have been sent
                self._lookup.note_not_sent(key)
            raise unreachable(server) from None

    def _note_answer(self, server: Server, key: RunKey, status: int, headers: CIMultiDictProxy[str]) -> None:
        execution_id = headers.get("Location", "").rpartition("/")[2]
        if status < 400 and execution_id.startswith("exe_"):
            self._lookup.note_accepted(key, execution_id, server.name)
        else:
            self._lookup.note_not_sent(key)

    async def create_on_best_server(
        self, request: web.Request, caller: PoolCaller, body: bytes, key: RunKey
    ) -> web.StreamResponse:
        """Forward a request that makes a session to the best server; to the next one if it does not take it.

        Raises
        ------
        PrincipalFull, PoolFull, NoServerStarted
            If there is no place.
        """
        began = time.monotonic()
        tried: set[str] = set()
        last: ExecError | None = None
        while True:
            try:
                reservation = await self.reserve(caller, request, tried)
            except PoolFull:
                if last is not None:
                    raise last from None
                raise
            server = reservation.server
            try:
                secret = await self._tokens.secret(server, caller)
                self._lookup.note_sent(key, server.name)
                note = partial(self._note_placed, reservation, key, began)
                return await self._router.forward(request, server, secret, body=body, on_answer=note, refusals=TRY_NEXT)
            except (Refused, NothingSent) as error:
                last = error.error if isinstance(error, Refused) else unreachable(server)
                self._keeper.note_failure(server.name)  # before the place is free for somebody who waits
            finally:
                reservation.done(is_kept=False)
            self._lookup.note_not_sent(key)
            tried.add(server.name)

    def _note_placed(
        self,
        reservation: Reservation,
        key: RunKey,
        began: float,
        status: int,
        headers: CIMultiDictProxy[str],
    ) -> None:
        self._metrics.place_seconds.observe(time.monotonic() - began)
        reservation.done(is_kept=status < 400)
        if status < 400:
            self._lookup.audit_placement(key.principal, reservation.server.name, headers.get("Location", ""))
        self._note_answer(reservation.server, key, status, headers)

    async def reserve(self, caller: PoolCaller, request: web.Request, excluded: Collection[str] = ()) -> Reservation:
        """Reserve a place for a session; with ``Prefer: wait=N``, wait for one."""
        if not (self.is_open and self._keeper.is_ready.is_set()):
            raise Unavailable("the pool's servers are still being checked; try again soon", retry_after_seconds=1)
        account = caller.account
        await self._require_share(account)
        match = _WAIT.search(request.headers.get("Prefer", ""))
        seconds = min(float(match[1]), _MAX_WAIT_SECONDS) if match is not None else 0.0
        if not seconds and self._keeper.is_count_uncertain():  # their next answers tell
            seconds = 5 * PROBE_SECONDS
        if seconds:
            place = await self._keeper.reserve_within(seconds, excluded, account)
        else:
            place = self._keeper.reserve_now(excluded, account)
        self._placed[account] += 1
        return place

    async def _require_share(self, account: str) -> None:
        """Raise `PrincipalFull` if an account has as many sessions as it may."""
        most = self._settings.max_sessions_per_principal
        if not most or self._placed[account] < most:
            return
        try:
            counts = await asyncio.gather(
                *(self._tokens.count_sessions(server, account) for server in self.answering())
            )
        except NothingSent:
            raise Unavailable("a server of the pool does not say what you have there", retry_after_seconds=1) from None
        self._placed[account] = count = sum(counts)
        if count >= most:
            raise PrincipalFull(
                f"you have {count} sessions in the pool, and may have {most}; end one first",
                retry_after_seconds=5,
                limit={"policy": "pool", "name": "max_sessions_per_principal", "value": most},
            )

    def _require_lost(self, server: Server | None) -> None:
        """Raise `ServerUnreachable` for a server that is away and may come back, or is not known yet."""
        if server is not None and server.state is ServerState.UNREACHABLE:
            raise unreachable(server)
        if not self._keeper.is_ready.is_set():
            raise ServerUnreachable("the pool was just started, and asks for its servers", retry_after_seconds=1)

    async def list_all(self, caller: PoolCaller, path: str, name: str) -> list[Any]:
        """Return the items of a list on all servers that answer and where the caller has a token.

        Servers of one home directory have records of each other; each item is returned once.
        """

        async def ask(server: Server) -> list[Any]:
            try:
                if not await self._tokens.has_token(server, caller):
                    return []
                return list((await self._tokens.call_as(caller, server, "GET", path))[name])
            except NothingSent:
                return []

        asked = [ask(server) for server in self.answering()]
        unique = {dumps(item): item for items in await asyncio.gather(*asked) for item in items}
        return list(unique.values())

    def any_server(self) -> Server:
        """Return a server that answers, for a question that all answer alike; raise `Unavailable` if there is none."""
        servers = self.answering()
        if not servers:
            raise Unavailable("no server of the pool answers now", retry_after_seconds=5)
        return servers[0]

    def answering(self) -> list[Server]:
        """Return the servers that can be asked."""
        return [s for s in self._keeper.servers.values() if s.state not in AWAY and s.address and s.load is not None]


def _idempotency_key(request: web.Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if key and not _KEY.fullmatch(key):
        raise InvalidRequest("'Idempotency-Key' must be 1 to 255 visible ASCII characters")
    return key
