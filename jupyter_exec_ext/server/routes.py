"""Every endpoint, with who may call it, in one table."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..aca.endpoint.aca_handler import ACA_PREFIX, ACANotFoundHandler
from ..aca.endpoint.pool_file_handlers import ACAContentHandler, ACAFileHandler, ACAFilesHandler, ACAUploadHandler
from ..aca.endpoint.pool_handlers import (
    ACAManagedSessionHandler,
    ACAManagedSessionsHandler,
    ACAMetadataHandler,
    ACAOpenAPIHandler,
    ACASessionHandler,
    ACASessionsHandler,
    ACAStopHandler,
)
from ..aca.endpoint.run_handlers import ACAEnvelopeRunHandler, ACAExecutionHandler, ACAFirstRunHandler, ACARunHandler
from ..auth.scopes import scope
from .approval_handlers import ApprovalHandler, ApprovalsHandler
from .base_handler import Access, ExecHandler, Services
from .change_feed_handler import NEEDED, ChangesHandler
from .execution_handlers import (
    ExecutionCancelHandler,
    ExecutionEventsHandler,
    ExecutionHandler,
    ExecutionInputHandler,
    ExecutionsHandler,
    SessionExecutionsHandler,
)
from .file_handlers import SessionFileHandler, SessionFilesHandler
from .info_handlers import InfoHandler, NotFoundHandler, OpenAPIHandler
from .output_handlers import ExecutionOutputHandler
from .session_handlers import (
    SessionHandler,
    SessionInterruptHandler,
    SessionNotebookHandler,
    SessionRestartHandler,
    SessionsHandler,
)
from .token_handlers import PoliciesHandler, TokenHandler, TokenRotateHandler, TokensHandler

PREFIX = "exec/v1"


@dataclass(frozen=True, slots=True)
class Route:
    """One path: its handler, and what each method needs."""

    path: str
    handler: type[ExecHandler]
    methods: dict[str, Access]


_READ = Access(None, "read")

ROUTES = (
    Route("/", InfoHandler, {"GET": _READ}),
    Route("/openapi.yaml", OpenAPIHandler, {"GET": _READ}),
    Route(
        "/sessions",
        SessionsHandler,
        {
            "GET": Access(scope("sessions:read"), "read"),
            "POST": Access(scope("sessions:create"), "write", or_scope=scope("kernels:attach")),
        },
    ),
    Route(
        "/sessions/{session_id}",
        SessionHandler,
        {"GET": Access(scope("sessions:read"), "read"), "DELETE": Access(scope("sessions:delete"), "write")},
    ),
    Route(
        "/sessions/{session_id}/interrupt",
        SessionInterruptHandler,
        {"POST": Access(scope("executions:control"), "execute")},
    ),
    Route(
        "/sessions/{session_id}/restart",
        SessionRestartHandler,
        {"POST": Access(scope("executions:control"), "execute")},
    ),
    Route(
        "/sessions/{session_id}/notebook",
        SessionNotebookHandler,
        {
            "GET": Access(scope("executions:read"), "execute"),
            # Among the server's own notebooks, where no agent has any business.
            "POST": Access(None, "write", "contents", owner_only=True),
        },
    ),
    Route(
        "/sessions/{session_id}/executions",
        SessionExecutionsHandler,
        {"GET": Access(scope("executions:read"), "execute"), "POST": Access(scope("executions:create"), "execute")},
    ),
    Route(
        "/sessions/{session_id}/files",
        SessionFilesHandler,
        {"GET": Access(scope("files:read"), "read", "contents")},
    ),
    Route(
        "/sessions/{session_id}/files/{path}",
        SessionFileHandler,
        {
            "GET": Access(scope("files:read"), "read", "contents"),
            "PUT": Access(scope("files:write"), "write", "contents"),
            "DELETE": Access(scope("files:write"), "write", "contents"),
        },
    ),
    Route(
        "/tokens",
        TokensHandler,
        {
            "GET": Access(scope("tokens:create"), "read", "tokens"),
            "POST": Access(scope("tokens:create"), "write", "tokens"),
        },
    ),
    Route(
        "/tokens/{token_id}",
        TokenHandler,
        {
            "GET": Access(scope("tokens:create"), "read", "tokens"),
            "DELETE": Access(scope("tokens:create"), "write", "tokens"),
        },
    ),
    Route(
        "/tokens/{token_id}/rotate",
        TokenRotateHandler,
        {"POST": Access(scope("tokens:create"), "write", "tokens")},
    ),
    Route("/events", ChangesHandler, {"GET": NEEDED["session"]}),
    Route("/policies", PoliciesHandler, {"GET": Access(None, "read", "tokens", owner_only=True)}),
    Route("/approvals", ApprovalsHandler, {"GET": Access(None, "execute", owner_only=True)}),
    Route("/approvals/{execution_id}", ApprovalHandler, {"POST": Access(None, "execute", owner_only=True)}),
    Route(
        "/executions",
        ExecutionsHandler,
        {"POST": Access(scope("executions:create"), "execute", and_scope=scope("sessions:create"))},
    ),
    Route("/executions/{execution_id}", ExecutionHandler, {"GET": Access(scope("executions:read"), "execute")}),
    Route(
        "/executions/{execution_id}/events",
        ExecutionEventsHandler,
        {"GET": Access(scope("executions:read"), "execute")},
    ),
    Route(
        "/executions/{execution_id}/outputs/{name}",
        ExecutionOutputHandler,
        {"GET": Access(scope("executions:read"), "execute")},
    ),
    Route(
        "/executions/{execution_id}/cancel",
        ExecutionCancelHandler,
        {"POST": Access(scope("executions:control"), "execute")},
    ),
    Route(
        "/executions/{execution_id}/input",
        ExecutionInputHandler,
        {"POST": Access(scope("executions:control"), "execute")},
    ),
)

_RUN = {"POST": Access(scope("executions:create"), "execute")}
_UPLOAD = {"POST": Access(scope("files:write"), "write", "contents")}
_DOWNLOAD = {"GET": Access(scope("files:read"), "read", "contents")}

# The ACA sessions' protocol, below `ACA_PREFIX` and an optional pool. What would make a session needs sessions:create,
# too, which the engine asks for. The first path that fits is taken.
ACA_ROUTES = (
    Route("/openapi.yaml", ACAOpenAPIHandler, {"GET": _READ}),
    Route("/code/execute", ACAEnvelopeRunHandler, _RUN),
    Route("/python/execute", ACAFirstRunHandler, _RUN),
    Route("/executions", ACARunHandler, _RUN),
    Route("/executions/{execution_id}", ACAExecutionHandler, {"GET": Access(scope("executions:read"), "execute")}),
    Route("/files/upload", ACAUploadHandler, _UPLOAD),
    Route("/files", ACAFilesHandler, {**_UPLOAD, **_DOWNLOAD}),
    Route("/files/content/{path}", ACAContentHandler, _DOWNLOAD),
    Route("/files/{path}/content", ACAContentHandler, _DOWNLOAD),
    Route("/files/{path}", ACAFileHandler, {**_DOWNLOAD, "DELETE": Access(scope("files:write"), "write", "contents")}),
    Route(
        "/session",
        ACASessionHandler,
        {"GET": Access(scope("sessions:read"), "read"), "DELETE": Access(scope("sessions:delete"), "write")},
    ),
    Route("/listSessions", ACASessionsHandler, {"GET": Access(scope("sessions:read"), "read")}),
    Route("/metadata", ACAMetadataHandler, {"GET": _READ}),
    Route("/.management/getSession", ACAManagedSessionHandler, {"POST": Access(scope("sessions:read"), "read")}),
    Route("/.management/listSessions", ACAManagedSessionsHandler, {"POST": Access(scope("sessions:read"), "read")}),
    Route("/.management/stopSession", ACAStopHandler, {"POST": Access(scope("sessions:delete"), "write")}),
)
_POOL = "(?P<pool>(?:/subscriptions/[^/]+/resourceGroups/[^/]+)?/sessionPools/[^/]+|)"


def _pattern(path: str, methods: Collection[str]) -> str:
    start, rest = re.subn(r"/\{path\}$", "", path.rstrip("/"))
    # A file's path goes to the end, whatever it holds; what it may not hold is refused with a reason.
    # A proxy makes .../sessions/ID/ of .../sessions/ID/files/..: such a path must not delete the session.
    end = "/(?P<path>.+)" if rest else "" if "DELETE" in methods else "/?"
    start = start.replace("{name}", "(?P<name>[A-Za-z0-9_.-]{1,64})")
    return f"/{PREFIX}" + re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9_-]{1,64})", start) + end


def _aca_pattern(path: str) -> str:
    literal = re.escape(path).replace(r"\{execution_id\}", "(?P<execution_id>[A-Za-z0-9_-]{1,64})")
    return f"/{ACA_PREFIX}{_POOL}" + literal.replace(r"\{path\}", "(?P<path>.+)")


def tornado_rules(services: Services) -> list[tuple[str, type[ExecHandler], dict[str, Any]]]:
    """Return the table as Tornado wants it, below the base URL, and rules for paths that do not exist."""
    # Tornado tries one after the other, so those of agents that run code come first.
    rules: list[tuple[str, type[ExecHandler], dict[str, Any]]] = [
        (_pattern(route.path, route.methods), route.handler, {"services": services, "access": route.methods})
        for route in ROUTES
    ]
    rules.append((f"/{PREFIX}(?:/.*)?", NotFoundHandler, {"services": services, "access": {}}))
    rules += [
        (_aca_pattern(route.path), route.handler, {"services": services, "access": route.methods})
        for route in ACA_ROUTES
    ]
    return [*rules, (f"/{ACA_PREFIX}(?:/.*)?", ACANotFoundHandler, {"services": services, "access": {}})]
