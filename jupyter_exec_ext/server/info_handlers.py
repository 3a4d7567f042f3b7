"""Handlers of the server's description: version, features, limits and the OpenAPI document."""

from __future__ import annotations

from importlib.resources import files

from tornado import web

from .. import __version__
from ..auth.policy_parsing import policy_to_json
from ..errors import NotFound
from ..isolation.network.libraries import missing_libraries
from ..mcp.endpoint import is_installed
from ..protocol.records_json import to_json
from .base_handler import ExecHandler

FEATURES = (
    "sessions",
    "executions",
    "events.sse",
    "events.ndjson",
    "input",
    "prefer.wait",
    "prefer.heartbeat",
    "idempotency-key",
    "files",
    "notebook",
    "tokens",
    "grants",
    "approvals",
    "changes.sse",
    "search",
    "jupyter",  # exec/jupyter
    "ports",
    "packages",
)


class InfoHandler(ExecHandler):
    """``GET /``: version, host, features, and what the caller may do here."""

    @web.authenticated
    async def get(self) -> None:
        """Describe the server to the caller."""
        if not self.token_authenticated:
            # A caller authenticated by a cookie needs the XSRF cookie's value for every change; this sets it.
            _ = self.xsrf_token
        host = self.engine.host
        self.answer(
            {
                "name": "jupyter_exec_ext",
                "version": __version__,
                "host": self.services.host,
                "host_version": self.services.host_version,
                "features": self._features(),
                "caller": {
                    "principal": self.caller.principal,
                    "display_name": self.caller.display_name,
                    "scopes": sorted(self.caller.scopes),
                },
                "limits": self.engine.limits(),
                "policies": [policy_to_json(policy) for policy in self.caller.policies],
                "unprotected_tokens": self.engine.allow_unprotected_tokens,
                # Not for tokens, since it names files and directories of the machine.
                "trouble": self.engine.trouble() if self.caller.is_owner else None,
                "default_kernel_name": host.default_kernel_name,
                "kernelspecs": [to_json(spec) for spec in await self.engine.kernelspecs(self.caller)],
            }
        )

    def _features(self) -> list[str]:
        more = {
            "mcp": is_installed(),
            "network": not missing_libraries(),
            "secrets": not missing_libraries(),
            "jupyter.token-in-url": self.services.allow_token_in_url,
        }
        return [*FEATURES, *(name for name, is_there in more.items() if is_there)]


class OpenAPIHandler(ExecHandler):
    """``GET /openapi.yaml``: the API's description."""

    package, document = "jupyter_exec_ext.server", "openapi.yaml"

    @web.authenticated
    async def get(self) -> None:
        """Send the document as it is in the package."""
        document = files(self.package).joinpath(self.document).read_bytes()
        self.finish(document, set_content_type="application/yaml")


class NotFoundHandler(ExecHandler):
    """Every other path below ``exec/v1``."""

    described_at = "exec/v1/openapi.yaml"

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Answer 404 to an authenticated caller only."""
        self.caller = await self.services.gate.authenticate(self)
        raise NotFound(f"there is no such path; GET {self.described_at} describes those there are")
