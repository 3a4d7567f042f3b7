"""Jupyter Server extension: builds the engine on the server's kernels, and shuts it down with the server."""

from __future__ import annotations

from typing import Any

import jupyter_server
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Float

from ..assembly import CONFIGURABLES, build_engine, build_host
from ..engine.engine import ExecEngine
from ..mcp.endpoint import McpEndpoint
from ..session_ports.port_services import port_services
from ..standard_api.client_registry import ClientRegistry
from ..standard_api.tokens_outside_header import TOKEN_IN_URL_WARNING
from .base_handler import ExecHandler, Services
from .closed_gate import close_gate_if_invalid
from .gate import ServerGate
from .graceful_stop import drain_at_sigterm
from .hub_callers import HubCallers, find_mapping_problem
from .routes import tornado_rules


class ExecExtensionApp(ExtensionApp):
    """Serves ``exec/v1`` inside a Jupyter Server; configured as ``c.ExecExtensionApp`` and ``c.ExecEngine``."""

    name = "jupyter_exec_ext"
    load_other_extensions = True
    classes = list(CONFIGURABLES)  # noqa: RUF012  # as the base class has it

    enabled = Bool(True, help="Serve exec/v1 and exec/aca.").tag(config=True)

    hub_policies = Dict(
        help="Policies of JupyterHub's tokens, by scope ({'custom:exec:run': 'default'}); the first one counts whose "
        "scope the token has. Tokens of the server's own user and of administrators have no policy. Without this "
        "setting every token with 'access:servers' has all rights of the server's owner."
    ).tag(config=True)
    hub_stale_seconds = Float(
        300.0,
        min=0.0,
        help="How long JupyterHub's last answer about a token stays good while the Hub cannot be reached, in seconds.",
    ).tag(config=True)

    allow_token_in_url = Bool(
        False,
        help="Accept scoped tokens in the query of a URL, for clients of exec/jupyter that send no header. "
        "URLs end up in the logs of proxies.",
    ).tag(config=True)

    engine: ExecEngine | None = None
    hub: HubCallers | None = None
    mcp: McpEndpoint | None = None

    def initialize_settings(self) -> None:
        """Build the engine on the server's own kernel manager."""
        server = self.serverapp
        assert server is not None
        if not self.enabled:
            self.log.info("exec/v1 is switched off (ExecExtensionApp.enabled)")
            return
        if server.gateway_config.gateway_enabled:
            self.log.error(
                "exec/v1 is not served: this server's kernels run on a gateway (%s). Install jupyter_exec_ext "
                "there, and connect clients to the gateway itself.",
                server.gateway_config.url,
            )
            return
        assert server.kernel_spec_manager is not None
        host = build_host(server.kernel_manager, server.kernel_spec_manager, server_sessions=server.session_manager)
        self.engine = build_engine(host, events=server.event_logger, parent=self, log=self.log)
        self._connect_hub(self.engine, server.identity_provider)
        # The event loop does not run yet.
        server.io_loop.add_callback(self.engine.audit.start)
        server.io_loop.add_callback(self.engine.fill_pool)
        server.io_loop.add_callback(drain_at_sigterm, self.engine)

    def _connect_hub(self, engine: ExecEngine, provider: Any) -> None:
        """Have JupyterHub's tokens recognised, if the server's users are JupyterHub's."""
        is_hubs = hasattr(provider, "hub_auth")
        problem = find_mapping_problem(self.hub_policies, engine.tokens.policies, is_hubs)
        if problem and not engine.policy_problem:  # which would explain that there are no policies
            self.log.error("exec/v1 runs no code until the policies are corrected: %s", problem)
            engine.policy_problem = problem
        if is_hubs:
            mapping = dict.fromkeys(map(str, self.hub_policies), "") if problem else dict(self.hub_policies)
            seconds = self.hub_stale_seconds
            self.hub = HubCallers(provider, engine.hub_tokens, mapping, stale_seconds=seconds, log=self.log)
            self.hub.install(lambda handler: isinstance(handler, ExecHandler))

    def initialize_handlers(self) -> None:
        """Register the route table."""
        if self.engine is not None:
            gate = close_gate_if_invalid(self.engine.policy_problem, ServerGate(self.engine.tokens, self.hub))
            server = self.serverapp
            assert server is not None
            ports = port_services(self.engine, is_hub=self.hub is not None, provider=server.identity_provider)
            # Before all rules of all extensions: there is nothing else on the ports' host names.
            server.web_app.default_router.rules.insert(0, server.web_app.default_router.process_rule(ports.rule))
            version = jupyter_server.__version__
            services = Services(self.engine, ports, gate, "jupyter_server", version, self.allow_token_in_url)
            self.mcp = McpEndpoint(self.engine)
            if self.allow_token_in_url:
                self.log.warning(TOKEN_IN_URL_WARNING)
            clients = ClientRegistry(self.engine, allow_token_in_url=self.allow_token_in_url)
            self.handlers.extend(tornado_rules(services, self.mcp, clients))

    def current_activity(self) -> dict[str, str] | None:
        """Report running executions, so that the server does not stop for lack of activity."""
        return (self.engine.activity() or None) if self.engine is not None else None

    async def stop_extension(self) -> None:
        """End sessions, executions and sockets."""
        if self.hub is not None:
            self.hub.tokens.close()
        if self.engine is not None:
            await self.engine.shutdown()
        if self.mcp is not None:
            await self.mcp.close()


def server_extension_points() -> list[dict[str, Any]]:
    """Return the extension points of this package, for Jupyter Server."""
    return [{"module": "jupyter_exec_ext.server.extension_app", "app": ExecExtensionApp}]
