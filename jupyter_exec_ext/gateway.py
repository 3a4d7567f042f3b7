"""Kernel Gateway personality: the stock kernels API and ``exec/v1`` in one process.

    jupyter kernelgateway --KernelGatewayApp.api=jupyter_exec_ext.gateway

It differs from the stock personality where that is not safe with several clients at once:

- ``POST /api/kernels`` passes a request's environment as an argument, so concurrent requests cannot get each other's.
  Kernels that are still starting count against ``max_kernels``.
- Every route checks the Host header (`allowed_hosts`) against DNS rebinding by web pages.
- Without an ``auth_token`` it starts only if it listens on a loopback address.

``exec/v1`` reads the token from the Authorization header alone: URLs end up in logs, and other sites could use cookies.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import uuid
from collections.abc import Awaitable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import kernel_gateway
from jupyter_client.jsonutil import json_default
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_core.utils import ensure_async
from jupyter_events import EventLogger
from jupyter_server.auth import User
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_escape, url_path_join
from kernel_gateway.jupyter_websocket import JupyterWebsocketPersonality
from kernel_gateway.mixins import CORSMixin
from kernel_gateway.services.kernels import handlers as stock
from kernel_gateway.services.sessions.sessionmanager import SessionManager
from tornado import web
from tornado.ioloop import IOLoop
from tornado.routing import Rule
from traitlets import Bool, List, Unicode
from traitlets.config import Config
from zmq import ZMQError

from .assembly import build_engine, build_host
from .auth.caller import Caller, owner
from .engine.kernels.kernel_host import ManagerKernelHost
from .errors import HostNotAllowed, InvalidRequest, OriginNotAllowed, TooManyKernels
from .mcp.endpoint import McpEndpoint
from .protocol.kernel_preparation import DEFAULT_NAMES
from .protocol.request_parsing import env_from_json
from .server.base_handler import ExecHandler, Services
from .server.closed_gate import close_gate_if_invalid
from .server.gate import Bearers, describe_user, let_in, scoped_token, unauthenticated, user_from
from .server.graceful_stop import drain_at_sigterm
from .server.routes import tornado_rules
from .server.site_checks import is_host_allowed, is_loopback, site_of
from .session_ports.port_services import port_services
from .standard_api.client_registry import ClientRegistry
from .standard_api.renewed_token import RenewedToken
from .standard_api.routes import standard_rules
from .standard_api.token_alias import replace_auth_token
from .standard_api.tokens_outside_header import TOKEN_IN_URL_WARNING, ScopedPath, hide_tokens_in_logs
from .system.resources import is_out_of_resources, make_resources_error

_AUTHORIZATION = re.compile(r"(?:token|bearer)\s+(\S+)", re.IGNORECASE)
_KERNEL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_USER = User("gateway", "gateway", "gateway", "GW", None, None)
_OWNER = owner("gateway", describe_user(_USER))


class GatewayGate:
    """Gate for Kernel Gateway's token and scoped tokens, in the Authorization header only."""

    def __init__(self, token: str, allowed_hosts: list[str], allow_origin: str, bearers: Bearers) -> None:
        self._token = token.encode()
        self._allowed_hosts = allowed_hosts
        self._allow_origin = allow_origin
        self._bearers = bearers

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Return the bearer of a scoped token, or the owner if the request brings the gateway's token."""
        request = handler.request
        self.check_site(handler)
        text = scoped_token(request)
        if text is not None:
            caller = self._bearers.authenticate(text, request.remote_ip or "")
            let_in(handler, await user_from(handler, caller.user))
            return caller
        if self._token:
            match = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
            if not hmac.compare_digest(match[1].encode() if match else b"", self._token):
                raise unauthenticated(request)
        let_in(handler, _USER)
        return _OWNER

    async def preflight(self, handler: APIHandler) -> None:
        """Answer a CORS preflight; the stock handlers add the headers."""
        self.check_site(handler)
        handler.set_cors_headers()

    def check_site(self, handler: APIHandler) -> None:
        """Check Host and Origin by the gateway's own rules."""
        request = handler.request
        if not is_host_allowed(request.host, self._allowed_hosts):
            raise HostNotAllowed(HOST_REFUSED)
        self._check_origin(request.headers.get("Origin"), request.host)

    def _check_origin(self, origin: str | None, host: str) -> None:
        if origin is None or self._allow_origin == "*":
            return
        if site_of(origin) == host.lower():
            return
        if not self._allow_origin or origin.lower() != self._allow_origin.lower():
            raise OriginNotAllowed("a browser sent this from another site; set KernelGatewayApp.allow_origin if it may")


HOST_REFUSED = (
    "this gateway does not answer to the host name in that address; use another one, such as localhost, or have its "
    "owner add it to ExecPersonality.allowed_hosts"
)


class HostCheckMixin(web.RequestHandler):
    """Check of the Host header, before a stock handler runs."""

    def prepare(self) -> Awaitable[None] | None:
        """Refuse a request with a Host header that is not allowed."""
        if not is_host_allowed(self.request.host, self.settings["kg_allowed_hosts"]):
            raise web.HTTPError(403, HOST_REFUSED)
        return super().prepare()


class KernelsHandler(stock.MainKernelHandler):
    """``/api/kernels`` with the stock contract, and an environment that stays with its request."""

    @web.authenticated
    @authorized(action="write", resource="kernels")
    async def post(self) -> None:
        """Start a kernel."""
        model = self._model()
        host: ManagerKernelHost = self.settings["kg_personality"].host
        manager = self.kernel_manager
        kernel_id = model.get("kernel_id") or str(uuid.uuid4())
        options = {
            "kernel_name": model.get("name") or manager.default_kernel_name,
            "path": model.get("path"),
            "kernel_id": kernel_id,
        }
        if "env" in model:
            # The stock handler replaces the manager's `start_kernel` while it awaits, so concurrent requests would mix.
            options["env"] = self._env(model["env"])
        try:
            # A kernel of the warm pool gives its place to a request.
            await host.make_room()
            with host.reserve(kernel_id):
                await ensure_async(manager.start_kernel(**options))
        except TooManyKernels as error:  # the stock gateway's status and words
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "Resource Limit: " + error.message) from None
        except NoSuchKernel as error:
            if model.get("name"):
                raise web.HTTPError(HTTPStatus.BAD_REQUEST, f"no kernelspec {error.name!r} is installed here") from None
            reason = f"the default kernelspec {error.name!r} is not installed; install it, or set default_kernel_name"
            raise web.HTTPError(HTTPStatus.INTERNAL_SERVER_ERROR, reason) from None
        except (OSError, ValueError, RuntimeError, ZMQError) as error:
            if is_out_of_resources(error):
                raise web.HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, make_resources_error(error).message) from None
            self.log.exception("a kernel could not be started")
            raise web.HTTPError(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the kernel could not be started; see the gateway's log"
            ) from None
        self.set_header("Location", url_path_join(self.base_url, "api", "kernels", url_escape(kernel_id)))
        self.set_status(HTTPStatus.CREATED)
        self.finish(json.dumps(manager.kernel_model(kernel_id), default=json_default))

    def _model(self) -> dict[str, Any]:
        try:
            model = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            raise web.HTTPError(HTTPStatus.BAD_REQUEST, "the request body is not valid JSON") from None
        if not isinstance(model, dict):
            raise web.HTTPError(HTTPStatus.BAD_REQUEST, "the request body must be a JSON object")
        for name in ("name", "path", "kernel_id"):
            if not isinstance(model.get(name), (str, type(None))):
                raise web.HTTPError(HTTPStatus.BAD_REQUEST, f"{name!r} must be a string")
        if model.get("kernel_id") and not _KERNEL_ID.fullmatch(model["kernel_id"]):
            raise web.HTTPError(HTTPStatus.BAD_REQUEST, "'kernel_id' must be letters, digits, - and _")
        return model

    def _env(self, asked: Any) -> dict[str, str]:
        """Return the kernel's environment by the gateway's own rules."""
        try:
            asked = env_from_json(asked)
        except InvalidRequest as error:
            raise web.HTTPError(HTTPStatus.BAD_REQUEST, error.message) from None
        inherited = {name: os.environ[name] for name in self.env_process_whitelist if name in os.environ}
        allowed = {k: v for k, v in asked.items() if k.startswith("KERNEL_") or k in self.env_whitelist}
        return {"PATH": os.environ.get("PATH", ""), **inherited, **allowed}


class NamedSessionManager(SessionManager):
    """The gateway's server sessions, with the names and types of those that have them.

    The stock manager fails to list, or to delete, a server session whose kernel is gone. Sessions end at any time.
    """

    def save_session(self, session_id: str, *args: Any, **columns: Any) -> Any:
        """Add a server session."""
        super().save_session(session_id, *args, **columns)
        self._sessions[-1].update({key: columns[key] for key in ("name", "type") if key in columns})
        return self.get_session(session_id=session_id)

    def row_to_model(self, row: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return a server session as the API shows it."""
        named = {key: row[key] for key in ("path", "name", "type")} if "type" in row else {}
        return {**super().row_to_model(row), **named}

    def list_sessions(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """Return all server sessions whose kernels are there."""
        self._sessions[:] = [row for row in self._sessions if row["kernel_id"] in self.kernel_manager]
        sessions: list[dict[str, Any]] = super().list_sessions()
        return sessions

    async def delete_session(self, session_id: str, *args: Any, **kwargs: Any) -> None:
        """Shut a server session's kernel down, with which a session ends, and remove it."""
        with suppress(ValueError):  # the end of a session has removed it
            await super().delete_session(session_id)


def with_cors(handler: type[ExecHandler]) -> type[web.RequestHandler]:
    """Return a handler with the CORS headers of the gateway's options; Jupyter Server's handlers read others."""
    return type(handler.__name__, (CORSMixin, handler), {})


class ExecPersonality(JupyterWebsocketPersonality):
    """Kernel Gateway's personality with ``exec/v1``; configured as ``c.ExecPersonality`` and ``c.ExecEngine``."""

    allowed_hosts = List(
        Unicode(),
        help="Host names under which the gateway may be reached, besides localhost and IP addresses; * for any. The "
        "machine's own name is allowed if the gateway does not listen on loopback only.",
    ).tag(config=True)

    scoped_standard_api = Bool(
        False,
        help="Serve the kernels API of scoped tokens at /api, too, for clients that take a host and a port and no base "
        "URL. The gateway's own token gets the stock API there.",
    ).tag(config=True)

    allow_token_in_url = Bool(
        False,
        help="Accept scoped tokens in the query of a URL, for clients of exec/jupyter that send no header. "
        "URLs end up in the logs of proxies.",
    ).tag(config=True)

    auth_token_is_scoped = Bool(
        False,
        help="Give KernelGatewayApp.auth_token the rights of a scoped token under the default policy, for clients that "
        "choose the token of a gateway that they start. The stock API is closed then.",
    ).tag(config=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        app = self.parent
        self._scoped: RenewedToken | None = None
        hide_tokens_in_logs()
        if self.allow_token_in_url:
            self.log.warning(TOKEN_IN_URL_WARNING)
        if not app.auth_token and not is_loopback(app.ip):
            raise SystemExit(
                f"jupyter_exec_ext: refusing to listen on {app.ip or 'all addresses'} without a token: anyone who "
                "reaches it could run code. Set KG_AUTH_TOKEN (or KernelGatewayApp.auth_token), or listen on "
                "127.0.0.1."
            )
        if not is_loopback(app.ip):
            self.allowed_hosts = [*self.allowed_hosts, socket.gethostname(), socket.getfqdn()]
        app.session_manager = NamedSessionManager(log=self.log, kernel_manager=app.kernel_manager)
        self.host = build_host(
            app.kernel_manager,
            app.kernel_spec_manager,
            max_kernels=app.max_kernels,
            forced_kernel_name=app.force_kernel_name,
            server_sessions=app.session_manager,
        )
        events = EventLogger(parent=self)  # the gateway has none of its own
        self.engine = build_engine(self.host, events=events, parent=self, log=self.log, config=self._engine_config())
        # The event loop does not run yet.
        IOLoop.current().add_callback(self.engine.audit.start)
        IOLoop.current().add_callback(self.engine.fill_pool)
        IOLoop.current().add_callback(drain_at_sigterm, self.engine)

    def _engine_config(self) -> Config:
        """Return the configuration with the gateway's own environment settings as defaults of ours."""
        names = [name for name in self.parent.env_process_whitelist if name]
        callers = ["KERNEL_*", *(name for name in self.env_whitelist if name)]
        defaults = Config({"ExecEngine": {"caller_env": callers}})
        if names:
            defaults.ExecEngine.inherited_env = [*DEFAULT_NAMES, *names]
        defaults.merge(self.config)
        return defaults

    def create_request_handlers(self) -> list[tuple[Any, ...]]:
        """Return our routes, then the stock ones with the Host check and our kernels handler."""
        app, ours = self.parent, list[Any]()
        if self.auth_token_is_scoped:
            rule, self._scoped = replace_auth_token(app, self.engine, _OWNER, allow_in_url=self.allow_token_in_url)
            ours.append(rule)
        gate = close_gate_if_invalid(
            self.engine.policy_problem,
            GatewayGate(app.auth_token, self.allowed_hosts, app.allow_origin, self.engine.tokens),
        )
        ports, version = port_services(self.engine, is_hub=False), kernel_gateway.__version__
        services = Services(self.engine, ports, gate, "kernel_gateway", version, self.allow_token_in_url)
        self.mcp = McpEndpoint(self.engine)
        clients = ClientRegistry(self.engine, allow_token_in_url=self.allow_token_in_url)
        ours += [
            (url_path_join("/", app.base_url, pattern), with_cors(handler), options)
            for pattern, handler, options in tornado_rules(services, self.mcp, clients)
        ]
        if self.scoped_standard_api:
            ours += [
                Rule(
                    ScopedPath(url_path_join("/", app.base_url, pattern), allow_in_url=self.allow_token_in_url),
                    with_cors(handler),
                    options,
                )
                for pattern, handler, options in standard_rules(services, clients, "")
            ]
        return [ports.rule, *ours] + [self._with_host_check(*rule) for rule in super().create_request_handlers()]

    def _with_host_check(self, pattern: str, handler: type[web.RequestHandler], *options: Any) -> tuple[Any, ...]:
        if handler is stock.MainKernelHandler:
            handler = KernelsHandler
        return (pattern, type(handler.__name__, (HostCheckMixin, handler), {}), *options)

    async def shutdown(self) -> None:
        """End sessions, executions and sockets, then all kernels."""
        if self._scoped is not None:
            await self._scoped.close()
        await self.engine.shutdown()
        await self.mcp.close()
        await super().shutdown()


def create_personality(*args: Any, **kwargs: Any) -> ExecPersonality:
    """Return the personality; Kernel Gateway calls this."""
    return ExecPersonality(*args, **kwargs)
