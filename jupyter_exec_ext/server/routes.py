"""Route table: every endpoint with its handler and the rights that each method needs."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..aca.endpoint.aca_handler import ACA_PREFIX, ACANotFoundHandler
from ..aca.endpoint.pool_handlers import (
    ACAContentHandler,
    ACAFileHandler,
    ACAFilesHandler,
    ACAManagedSessionHandler,
    ACAManagedSessionsHandler,
    ACAMetadataHandler,
    ACAOpenAPIHandler,
    ACASessionHandler,
    ACASessionsHandler,
    ACAStopHandler,
    ACAUploadHandler,
)
from ..aca.endpoint.run_handlers import ACAEnvelopeRunHandler, ACAExecutionHandler, ACAFirstRunHandler, ACARunHandler
from ..mcp.endpoint import McpEndpoint
from ..mcp.mcp_handler import (
    MCP_PREFIX,
    METADATA_PATH,
    TOKENS_PATH,
    McpHandler,
    McpMetadataHandler,
    McpTokensHandler,
)
from ..session_ports.port_handlers import PortHandler, PortProxyHandler, PortsHandler
from ..standard_api.client_registry import ClientRegistry
from ..standard_api.kernel_handlers import StandardNotFoundHandler
from ..standard_api.routes import STANDARD_PREFIX, standard_rules
from .base_handler import ExecHandler, Services
from .change_feed_handler import NEEDED, ChangesHandler
from .checkpoint_handlers import BranchesHandler, CheckpointHandler, CheckpointsHandler, RestoreHandler
from .execution_handlers import (
    ApprovalHandler,
    ApprovalsHandler,
    ExecutionCancelHandler,
    ExecutionEventsHandler,
    ExecutionHandler,
    ExecutionInputHandler,
    ExecutionsHandler,
    PackagesHandler,
    SessionExecutionsHandler,
)
from .file_handlers import ExecutionOutputHandler, SessionChangeHandler, SessionFileHandler, SessionFilesHandler
from .gate import Access
from .info_handlers import InfoHandler, NotFoundHandler, OpenAPIHandler
from .network_handlers import NetworkHandler
from .rights import (
    APPROVE,
    BRANCH,
    CHECKPOINT,
    CONTROL_EXECUTIONS,
    CREATE_SESSION,
    DELETE_SESSIONS,
    DRAIN,
    GRANT,
    READ,
    READ_EXECUTIONS,
    READ_FILES,
    READ_LOAD,
    READ_PORTS,
    READ_SECRETS,
    READ_SESSIONS,
    READ_TOKENS,
    RUN_CODE,
    USE_PORTS,
    WRITE_FILES,
    WRITE_SECRETS,
    WRITE_TOKENS,
)
from .secret_handlers import SecretHandler, SecretKeyHandler, SecretsHandler
from .session_handlers import (
    SessionApprovedKindsHandler,
    SessionHandler,
    SessionInterruptHandler,
    SessionNotebookHandler,
    SessionRestartHandler,
    SessionsHandler,
    SessionUsageHandler,
)
from .status_handlers import DrainHandler, LoadHandler, ReadyHandler
from .token_handlers import (
    GrantHandler,
    GrantsHandler,
    PoliciesHandler,
    TokenHandler,
    TokenRotateHandler,
    TokensHandler,
)

PREFIX = "exec/v1"


@dataclass(frozen=True, slots=True)
class Route:
    """One path: its handler, and the rights that each method needs."""

    path: str
    handler: type[ExecHandler]
    methods: dict[str, Access]


# Without authentication, and so the same for everyone: nothing here may depend on the caller.
OPEN_ROUTES = (Route("/ready", ReadyHandler, {"GET": READ}),)

ROUTES = (
    Route("/", InfoHandler, {"GET": READ}),
    Route("/openapi.yaml", OpenAPIHandler, {"GET": READ}),
    Route("/load", LoadHandler, {"GET": READ_LOAD}),
    Route("/drain", DrainHandler, {"POST": DRAIN, "DELETE": DRAIN}),
    Route(
        "/sessions",
        SessionsHandler,
        {
            "GET": READ_SESSIONS,
            "POST": CREATE_SESSION,
        },
    ),
    Route(
        "/sessions/{session_id}",
        SessionHandler,
        {"GET": READ_SESSIONS, "DELETE": DELETE_SESSIONS},
    ),
    Route(
        "/sessions/{session_id}/interrupt",
        SessionInterruptHandler,
        {"POST": CONTROL_EXECUTIONS},
    ),
    Route(
        "/sessions/{session_id}/restart",
        SessionRestartHandler,
        {"POST": CONTROL_EXECUTIONS},
    ),
    Route("/sessions/{session_id}/checkpoints", CheckpointsHandler, {"GET": READ_SESSIONS, "POST": CHECKPOINT}),
    Route("/sessions/{session_id}/checkpoints/{checkpoint_id}", CheckpointHandler, {"DELETE": CHECKPOINT}),
    Route("/sessions/{session_id}/branches", BranchesHandler, {"POST": BRANCH}),
    Route("/sessions/{session_id}/restore", RestoreHandler, {"POST": CHECKPOINT}),
    Route("/sessions/{session_id}/usage", SessionUsageHandler, {"GET": READ_SESSIONS}),
    Route("/sessions/{session_id}/network", NetworkHandler, {"GET": READ_SESSIONS, "POST": APPROVE}),
    Route("/sessions/{session_id}/packages", PackagesHandler, {"POST": RUN_CODE}),
    Route(
        "/sessions/{session_id}/notebook",
        SessionNotebookHandler,
        {
            "GET": READ_EXECUTIONS,
            # It writes among the server's own notebooks, to which agents have no access.
            "POST": Access(None, "write", "contents", owner_only=True),
        },
    ),
    Route(
        "/sessions/{session_id}/executions",
        SessionExecutionsHandler,
        {"GET": READ_EXECUTIONS, "POST": RUN_CODE},
    ),
    Route("/sessions/{session_id}/approved-kinds", SessionApprovedKindsHandler, {"DELETE": APPROVE}),
    Route("/sessions/{session_id}/ports", PortsHandler, {"GET": READ_PORTS, "POST": USE_PORTS}),
    Route("/sessions/{session_id}/ports/{port}", PortHandler, {"DELETE": USE_PORTS}),
    Route(
        "/sessions/{session_id}/ports/{port}/{rest}",
        PortProxyHandler,
        dict.fromkeys(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), USE_PORTS),
    ),
    Route("/sessions/{session_id}/changes/{path}", SessionChangeHandler, {"GET": READ_FILES}),
    Route(
        "/sessions/{session_id}/files",
        SessionFilesHandler,
        {"GET": READ_FILES},
    ),
    Route(
        "/sessions/{session_id}/files/{path}",
        SessionFileHandler,
        {
            "GET": READ_FILES,
            "PUT": WRITE_FILES,
            "DELETE": WRITE_FILES,
        },
    ),
    Route(
        "/tokens",
        TokensHandler,
        {
            "GET": READ_TOKENS,
            "POST": WRITE_TOKENS,
        },
    ),
    Route(
        "/tokens/{token_id}",
        TokenHandler,
        {
            "GET": READ_TOKENS,
            "DELETE": WRITE_TOKENS,
        },
    ),
    Route(
        "/tokens/{token_id}/rotate",
        TokenRotateHandler,
        {"POST": WRITE_TOKENS},
    ),
    # A token must not open a kernel to itself or to another one. Code in a user's kernel runs as that user.
    Route("/grants", GrantsHandler, {"GET": READ_SESSIONS, "POST": GRANT}),
    Route("/grants/{grant_id}", GrantHandler, {"DELETE": GRANT}),
    # Code in kernels must not read or replace what the proxy adds to its requests.
    Route("/secrets", SecretsHandler, {"GET": READ_SECRETS}),
    Route(
        "/secrets/{secret_name}", SecretHandler, {"GET": READ_SECRETS, "PUT": WRITE_SECRETS, "DELETE": WRITE_SECRETS}
    ),
    Route("/secret-key/rotate", SecretKeyHandler, {"POST": WRITE_SECRETS}),
    Route("/events", ChangesHandler, {"GET": NEEDED["session"]}),
    Route("/policies", PoliciesHandler, {"GET": Access(None, "read", "tokens", owner_only=True)}),
    Route("/approvals", ApprovalsHandler, {"GET": APPROVE}),
    Route("/approvals/{execution_id}", ApprovalHandler, {"POST": APPROVE}),
    Route(
        "/executions",
        ExecutionsHandler,
        {
            "GET": READ_EXECUTIONS,
            "POST": Access("executions:create", "execute", and_scope="sessions:create"),
        },
    ),
    Route("/executions/{execution_id}", ExecutionHandler, {"GET": READ_EXECUTIONS}),
    Route(
        "/executions/{execution_id}/events",
        ExecutionEventsHandler,
        {"GET": READ_EXECUTIONS},
    ),
    Route(
        "/executions/{execution_id}/outputs/{name}",
        ExecutionOutputHandler,
        {"GET": READ_EXECUTIONS},
    ),
    Route(
        "/executions/{execution_id}/cancel",
        ExecutionCancelHandler,
        {"POST": CONTROL_EXECUTIONS},
    ),
    Route(
        "/executions/{execution_id}/input",
        ExecutionInputHandler,
        {"POST": CONTROL_EXECUTIONS},
    ),
)

_RUN = {"POST": RUN_CODE}
_UPLOAD = {"POST": WRITE_FILES}
_DOWNLOAD = {"GET": READ_FILES}

# The ACA sessions' protocol, below `ACA_PREFIX` and an optional pool. A request that creates a session needs the scope
# sessions:create, too, which the engine checks. The first path that matches is used.
ACA_ROUTES = (
    Route("/openapi.yaml", ACAOpenAPIHandler, {"GET": READ}),
    Route("/code/execute", ACAEnvelopeRunHandler, _RUN),
    Route("/python/execute", ACAFirstRunHandler, _RUN),
    Route("/executions", ACARunHandler, _RUN),
    Route("/executions/{execution_id}", ACAExecutionHandler, {"GET": READ_EXECUTIONS}),
    Route("/files/upload", ACAUploadHandler, _UPLOAD),
    Route("/files", ACAFilesHandler, {**_UPLOAD, **_DOWNLOAD}),
    Route("/files/content/{path}", ACAContentHandler, _DOWNLOAD),
    Route("/files/{path}/content", ACAContentHandler, _DOWNLOAD),
    Route("/files/{path}", ACAFileHandler, {**_DOWNLOAD, "DELETE": WRITE_FILES}),
    Route(
        "/session",
        ACASessionHandler,
        {"GET": READ_SESSIONS, "DELETE": DELETE_SESSIONS},
    ),
    Route("/listSessions", ACASessionsHandler, {"GET": READ_SESSIONS}),
    Route("/metadata", ACAMetadataHandler, {"GET": READ}),
    Route("/.management/getSession", ACAManagedSessionHandler, {"POST": READ_SESSIONS}),
    Route("/.management/listSessions", ACAManagedSessionsHandler, {"POST": READ_SESSIONS}),
    Route("/.management/stopSession", ACAStopHandler, {"POST": DELETE_SESSIONS}),
)
_POOL = "(?P<pool>(?:/subscriptions/[^/]+/resourceGroups/[^/]+)?/sessionPools/[^/]+|)"


def _pattern(path: str, methods: Collection[str]) -> str:
    start, rest = re.subn(r"/\{path\}$", "", path.rstrip("/"))
    # A file's path has any characters up to the end; the engine rejects a forbidden one with its reason.
    # A proxy turns .../sessions/ID/files/.. into .../sessions/ID/, which must not delete the session.
    end = "/(?P<path>.+)" if rest else "" if "DELETE" in methods else "/?"
    start = start.replace("{rest}", "(?P<rest>.*)")
    start = start.replace("{name}", "(?P<name>[A-Za-z0-9_.-]{1,64})")
    return f"/{PREFIX}" + re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9_-]{1,64})", start) + end


def _aca_pattern(path: str) -> str:
    literal = re.escape(path).replace(r"\{execution_id\}", "(?P<execution_id>[A-Za-z0-9_-]{1,64})")
    return f"/{ACA_PREFIX}{_POOL}" + literal.replace(r"\{path\}", "(?P<path>.+)")


def tornado_rules(
    services: Services, mcp: McpEndpoint, clients: ClientRegistry
) -> list[tuple[str, type[ExecHandler], dict[str, Any]]]:
    """Return the table as Tornado's rules below the base URL, with rules for paths that do not exist."""
    rules: list[tuple[str, type[ExecHandler], dict[str, Any]]] = [
        (_pattern(route.path, route.methods), route.handler, {"services": services, "access": route.methods})
        for route in (*OPEN_ROUTES, *ROUTES)
    ]
    # Without these rules the host would answer unknown paths, also to callers that it does not know.
    rules.append((f"/{PREFIX}(?:/.*)?", NotFoundHandler, {"services": services, "access": {}}))
    rules += [
        (_aca_pattern(route.path), route.handler, {"services": services, "access": route.methods})
        for route in ACA_ROUTES
    ]
    rules.append((f"/{ACA_PREFIX}(?:/.*)?", ACANotFoundHandler, {"services": services, "access": {}}))
    rules += [*_mcp_rules(services, mcp), *standard_rules(services, clients)]
    return [*rules, (f"/{STANDARD_PREFIX}(?:/.*)?", StandardNotFoundHandler, {"services": services, "access": {}})]


def _mcp_rules(services: Services, mcp: McpEndpoint) -> list[tuple[str, type[ExecHandler], dict[str, Any]]]:
    # Each tool needs the rights of its endpoint of exec/v1: see `mcp.tools`.
    access = {"POST": READ, "GET": READ, "DELETE": READ}
    open_to_all = {"services": services, "access": {"GET": READ}}
    return [
        (
            f"/{MCP_PREFIX}",
            McpHandler,
            {"services": services, "access": access, "endpoint": mcp},
        ),
        (f"/{METADATA_PATH}", McpMetadataHandler, open_to_all),
        # Where RFC 9728 has it for a server whose base URL is /.
        (f"/.well-known/oauth-protected-resource/{MCP_PREFIX}", McpMetadataHandler, open_to_all),
        (f"/{TOKENS_PATH}", McpTokensHandler, open_to_all),
        (f"/{MCP_PREFIX}/.*", NotFoundHandler, {"services": services, "access": {}}),
    ]
