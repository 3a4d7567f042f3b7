"""Web application of a pool: its routes, the answers to all errors, and its own status."""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from http.client import responses
from pathlib import Path
from typing import Any

from aiohttp import web

from .. import __version__
from ..aca.protocol.error_format import CODE_HEADER
from ..aca.protocol.error_format import error_to_json as aca_error_to_json
from ..errors import (
    ClientError,
    ExecError,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServerUnreachable,
    Unavailable,
)
from ..protocol.strict_json import dump_bytes
from .aca_and_mcp import AcaAndMcpRequests
from .answers import answer_json, read_flag, require_scope
from .approvals import Approvals, require_admin
from .callers import Callers, PoolCaller
from .credential_watch import CredentialWatch
from .metrics import PoolMetrics
from .router import PREFIX, RETRY_AFTER_SECONDS, NothingSent
from .searches import Searches
from .server_keeper import Keeper
from .server_tokens import ServerTokens
from .sessions import SessionRequests
from .status_page import status_page, token_from_basic_login
from .token_requests import TokenRequests

Handler = Callable[[web.Request, PoolCaller], Awaitable[web.StreamResponse]]

#: What the pool offers of the servers' features. The panel's feed, grants and attaching are of one server each.
FEATURES = (
    *("sessions", "executions", "events.sse", "events.ndjson", "input", "prefer.wait", "prefer.heartbeat"),
    *("idempotency-key", "files", "notebook", "tokens", "approvals", "search", "mcp", "pool"),
)
REQUEST_ID = web.RequestKey("request_id", str)
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OWN_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_OPENAPI = Path(__file__).parent.parent / "server" / "openapi.yaml"


class PoolWebApp:
    """The pool's HTTP interface.

    Parameters
    ----------
    keeper, tokens, sessions, others, searches, approvals, callers, token_requests, watch, metrics
        The parts of the pool.
    log : logging.Logger
        The pool's log.
    """

    def __init__(
        self,
        keeper: Keeper,
        tokens: ServerTokens,
        sessions: SessionRequests,
        others: AcaAndMcpRequests,
        searches: Searches,
        approvals: Approvals,
        callers: Callers,
        token_requests: TokenRequests,
        watch: CredentialWatch,
        metrics: PoolMetrics,
        log: logging.Logger,
    ) -> None:
        self._keeper = keeper
        self._tokens = tokens
        self._sessions = sessions
        self._others = others
        self._searches = searches
        self._approvals = approvals
        self._callers = callers
        self._token_requests = token_requests
        self._watch = watch
        self._metrics = metrics
        self._log = log

    def application(self, *prefixes: str) -> web.Application:
        """Return the application below some paths, each with a slash at both ends."""
        app = web.Application(middlewares=[self._answer_errors])
        for prefix in sorted(set(prefixes), key=len, reverse=True):
            self._add_routes(app, prefix)
        return app

    def _add_routes(self, app: web.Application, prefix: str) -> None:
        async def ready(request: web.Request) -> web.StreamResponse:
            return self._ready()

        api, sessions, tokens = f"{prefix}exec/v1", self._sessions, self._token_requests
        app.router.add_get(f"{api}/ready", ready)
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "", self._info),
            ("GET", "/", self._info),
            ("GET", "/openapi.yaml", self._openapi),
            ("GET", "/load", self._load),
            ("POST", "/sessions", sessions.create_session),
            ("GET", "/sessions", self._list_sessions),
            ("*", "/sessions/{session_id}", sessions.of_session),
            ("*", "/sessions/{session_id}/{tail:(?s:.*)}", sessions.of_session),
            ("POST", "/executions", sessions.run_fresh),
            ("GET", "/executions", self._search),
            ("*", "/executions/{execution_id}", sessions.of_execution),
            ("*", "/executions/{execution_id}/{tail:(?s:.*)}", sessions.of_execution),
            ("GET", "/policies", tokens.policies),
            ("GET", "/approvals", self._approvals.list),
            ("POST", "/approvals/{execution_id}", self._approvals.decide),
            ("GET", "/tokens", tokens.list),
            ("POST", "/tokens", tokens.create),
            ("GET", "/tokens/{token_id}", tokens.show),
            ("DELETE", "/tokens/{token_id}", tokens.revoke),
            ("POST", "/tokens/{token_id}/rotate", tokens.rotate),
        ]
        for method, path, handler in routes:
            app.router.add_route(method, api + path, self._for_caller(handler, prefix))
        others: list[tuple[str, str, Handler]] = [
            ("*", "exec/aca/{tail:(?s:.*)}", self._others.aca),
            ("*", "exec/mcp", self._others.mcp),
            ("GET", "metrics", self._show_metrics),
            ("GET", "", self._status_page),
        ]
        for method, path, handler in others:
            app.router.add_route(method, prefix + path, self._for_caller(handler, prefix))

    def _for_caller(self, handler: Handler, prefix: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            request[PREFIX] = prefix
            authorization = request.headers.get("Authorization", "")
            if _is_status_page(request):
                authorization = token_from_basic_login(authorization)
            caller = await self._callers.authenticate(authorization, request.remote or "")
            with self._watch.open_request(caller):
                return await handler(request, caller)

        return handle

    # --- errors ---

    @web.middleware
    async def _answer_errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        asked = request.headers.get("X-Request-Id", "")
        request[REQUEST_ID] = asked if _REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        try:
            response = await handler(request)
        except ClientError as error:  # of the pool as a client of its servers; it has no status
            self._log.warning("pool: a server has answered %s unexpectedly: %s", request.path, error.message)
            response = self._error(request, Unavailable("a server of the pool has answered in no known way"))
        except ExecError as error:
            response = self._error(request, error)
        except NothingSent:  # a server that has ended just now, or does not answer in time
            problem = "a server of the pool does not answer; it is asked again, or given up soon"
            response = self._error(request, ServerUnreachable(problem, retry_after_seconds=RETRY_AFTER_SECONDS))
        except web.HTTPException as error:  # no route
            response = await self._no_route(request, error)
        except ConnectionError:  # the client has gone
            raise
        except Exception:
            self._log.exception("pool: %s %s failed", request.method, request.rel_url.raw_path)
            response = self._error(request, InternalError("the pool has failed; its log says how"))
        if not response.prepared:
            for name, value in _OWN_HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("X-Request-Id", request[REQUEST_ID])
        return response

    async def _no_route(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """Answer a request for a path or method that there is not, to a known caller only."""
        try:
            await self._callers.authenticate(request.headers.get("Authorization", ""), request.remote or "")
        except ExecError as refused:
            return self._error(request, refused)
        if isinstance(error, web.HTTPMethodNotAllowed):
            allowed = ", ".join(sorted(error.allowed_methods - {"HEAD"}))
            answer = self._error(request, MethodNotAllowed(f"this path has {allowed}, and no {request.method}"))
            answer.headers["Allow"] = allowed
            return answer
        return self._error(
            request,
            NotFound(
                "a pool has no such path: it has sessions, executions, files, tokens, exec/aca and exec/mcp; grants, "
                "attached kernels and the feed of changes are of one server"
            ),
        )

    def _error(self, request: web.Request, error: ExecError) -> web.Response:
        request_id, headers = request[REQUEST_ID], {}
        if error.status == 401:
            # Browsers ask for the token of the page in a dialog. Elsewhere, one that they keep must not be good.
            headers["WWW-Authenticate"] = 'Basic realm="token"' if _is_status_page(request) else "Bearer"
        if error.retry_after_header is not None:
            headers["Retry-After"] = error.retry_after_header
        if error.status in (429, 503):
            self._metrics.refusals.labels(error.code).inc()
        status = error.status
        body: dict[str, Any] = {
            "code": error.code,
            "message": error.message,
            "reason": responses.get(status),
            "request_id": request_id,
        }
        if error.limit is not None:
            body["limit"] = dict(error.limit)
        if "/exec/aca/" in request.path:
            status, headers[CODE_HEADER], body = aca_error_to_json(error, trace_id=request_id)
        return web.Response(status=status, body=dump_bytes(body), content_type="application/json", headers=headers)

    # --- lists of all servers ---

    async def _list_sessions(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        require_scope(caller, "sessions:read")
        for name in ("ended", "memory"):
            read_flag(request, name)
        sessions = await self._sessions.list_all(caller, _path(request, "sessions"), "sessions")
        return answer_json({"sessions": sorted(sessions, key=lambda session: str(session["created_at"]))})

    async def _search(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        require_scope(caller, "executions:read")
        return answer_json(await self._searches.search(caller, request.query))

    # --- the pool's own figures ---

    def _ready(self) -> web.StreamResponse:
        is_ready = self._sessions.is_ready
        return answer_json({"ready": is_ready, "draining": False}, 200 if is_ready else 503)

    def _figures(self) -> dict[str, Any]:
        servers = self._keeper.servers.values()
        loads = [server.load for server in servers if server.load is not None]
        return {
            "servers": dict(Counter(str(server.state.value) for server in servers)),
            "sessions": sum(load.sessions for load in loads),
            "running": sum(load.running for load in loads),
            "queued": sum(load.queued for load in loads),
            "free_places": self._keeper.count_free_places(),
        }

    async def _info(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        answer: dict[str, Any] = {"limits": {}, "policies": [], "kernelspecs": [], "default_kernel_name": "python3"}
        for server in self._sessions.answering() if caller.policy else []:
            try:
                answer = await self._tokens.call_as(caller, server, "GET", "")
                break
            except NothingSent:
                continue
        names = {"principal": caller.principal, "display_name": caller.principal, "scopes": sorted(caller.scopes)}
        own = {"name": "jupyter_exec_ext", "version": __version__, "host": "pool", "host_version": __version__}
        trouble = self._keeper.trouble if caller.is_admin else None
        return answer_json(
            {**answer, **own, "features": list(FEATURES), "caller": names, "trouble": trouble, "pool": self._figures()}
        )

    async def _openapi(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        return web.Response(body=_OPENAPI.read_bytes(), content_type="application/yaml")

    async def _load(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        require_admin(caller)
        return answer_json({**self._figures(), "servers": self._server_rows(), "trouble": self._keeper.trouble})

    async def _show_metrics(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        require_admin(caller)
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    def _server_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "name": server.name,
                "state": server.state.value,
                "sessions": server.load.sessions if server.load else 0,
                "running": server.load.running if server.load else 0,
                "problem": server.problem,
            }
            for server in self._keeper.servers.values()
        ]

    async def _status_page(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        require_admin(caller)
        return status_page({**self._figures(), "trouble": self._keeper.trouble}, self._server_rows())


def _is_status_page(request: web.Request) -> bool:
    return request.path == request.get(PREFIX)


def _path(request: web.Request, name: str) -> str:
    return f"{name}?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else name
