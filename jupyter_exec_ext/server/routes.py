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
from .base_handler import ExecHandler, Services
from .change_feed_handler import NEEDED, ChangesHandler
from .execution_handlers import (
    ApprovalHandler,
    ApprovalsHandler,
    ExecutionCancelHandler,
    ExecutionEventsHandler,
    ExecutionHandler,
    ExecutionInputHandler,
    ExecutionsHandler,
    SessionExecutionsHandler,
)
from .file_handlers import ExecutionOutputHandler, SessionChangeHandler, SessionFileHandler, SessionFilesHandler
from .gate import Access
from .info_handlers import InfoHandler, NotFoundHandler, OpenAPIHandler
from .session_handlers import (
    SessionApprovedKindsHandler,
    SessionHandler,
    SessionInterruptHandler,
    SessionNotebookHandler,
    SessionRestartHandler,
    SessionsHandler,
    SessionUsageHandler,
)
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


_READ = Access(None, "read")
_READ_SESSIONS = Access("sessions:read", "read")
_DELETE_SESSIONS = Access("sessions:delete", "write")
_RUN_CODE = Access("executions:create", "execute")
_READ_EXECUTIONS = Access("executions:read", "execute")
_CONTROL_EXECUTIONS = Access("executions:control", "execute")
_READ_FILES = Access("files:read", "read", "contents")
_WRITE_FILES = Access("files:write", "write", "contents")
_READ_TOKENS = Access("tokens:create", "read", "tokens")
_WRITE_TOKENS = Access("tokens:create", "write", "tokens")
# A token must not approve its own code.
_APPROVE = Access(None, "execute", owner_only=True)
_GRANT = Access(None, "execute", owner_only=True)

ROUTES = (
    Route("/", InfoHandler, {"GET": _READ}),
    Route("/openapi.yaml", OpenAPIHandler, {"GET": _READ}),
    Route(
        "/sessions",
        SessionsHandler,
        {
            "GET": _READ_SESSIONS,
            "POST": Access("sessions:create", "write", or_scope="kernels:attach"),
        },
    ),
    Route(
        "/sessions/{session_id}",
        SessionHandler,
        {"GET": _READ_SESSIONS, "DELETE": _DELETE_SESSIONS},
    ),
    Route(
        "/sessions/{session_id}/interrupt",
        SessionInterruptHandler,
        {"POST": _CONTROL_EXECUTIONS},
    ),
    Route(
        "/sessions/{session_id}/restart",
        SessionRestartHandler,
        {"POST": _CONTROL_EXECUTIONS},
    ),
    Route("/sessions/{session_id}/usage", SessionUsageHandler, {"GET": _READ_SESSIONS}),
    Route(
        "/sessions/{session_id}/notebook",
        SessionNotebookHandler,
        {
            "GET": _READ_EXECUTIONS,
            # It writes among the server's own notebooks, to which agents have no access.
            "POST": Access(None, "write", "contents", owner_only=True),
        },
    ),
    Route(
        "/sessions/{session_id}/executions",
        SessionExecutionsHandler,
        {"GET": _READ_EXECUTIONS, "POST": _RUN_CODE},
    ),
    Route("/sessions/{session_id}/approved-kinds", SessionApprovedKindsHandler, {"DELETE": _APPROVE}),
    Route("/sessions/{session_id}/changes/{path}", SessionChangeHandler, {"GET": _READ_FILES}),
    Route(
        "/sessions/{session_id}/files",
        SessionFilesHandler,
        {"GET": _READ_FILES},
    ),
    Route(
        "/sessions/{session_id}/files/{path}",
        SessionFileHandler,
        {
            "GET": _READ_FILES,
            "PUT": _WRITE_FILES,
            "DELETE": _WRITE_FILES,
        },
    ),
    Route(
        "/tokens",
        TokensHandler,
        {
            "GET": _READ_TOKENS,
            "POST": _WRITE_TOKENS,
        },
    ),
    Route(
        "/tokens/{token_id}",
        TokenHandler,
        {
            "GET": _READ_TOKENS,
            "DELETE": _WRITE_TOKENS,
        },
    ),
    Route(
        "/tokens/{token_id}/rotate",
        TokenRotateHandler,
        {"POST": _WRITE_TOKENS},
    ),
    # A token must not open a kernel to itself or to another one. Code in a user's kernel runs as that user.
    Route("/grants", GrantsHandler, {"GET": _READ_SESSIONS, "POST": _GRANT}),
    Route("/grants/{grant_id}", GrantHandler, {"DELETE": _GRANT}),
    Route("/events", ChangesHandler, {"GET": NEEDED["session"]}),
    Route("/policies", PoliciesHandler, {"GET": Access(None, "read", "tokens", owner_only=True)}),
    Route("/approvals", ApprovalsHandler, {"GET": _APPROVE}),
    Route("/approvals/{execution_id}", ApprovalHandler, {"POST": _APPROVE}),
    Route(
        "/executions",
        ExecutionsHandler,
        {
            "GET": _READ_EXECUTIONS,
            "POST": Access("executions:create", "execute", and_scope="sessions:create"),
        },
    ),
    Route("/executions/{execution_id}", ExecutionHandler, {"GET": _READ_EXECUTIONS}),
    Route(
        "/executions/{execution_id}/events",
        ExecutionEventsHandler,
        {"GET": _READ_EXECUTIONS},
    ),
    Route(
        "/executions/{execution_id}/outputs/{name}",
        ExecutionOutputHandler,
        {"GET": _READ_EXECUTIONS},
    ),
    Route(
        "/executions/{execution_id}/cancel",
        ExecutionCancelHandler,
        {"POST": _CONTROL_EXECUTIONS},
    ),
    Route(
        "/executions/{execution_id}/input",
        ExecutionInputHandler,
        {"POST": _CONTROL_EXECUTIONS},
    ),
)

_RUN = {"POST": _RUN_CODE}
_UPLOAD = {"POST": _WRITE_FILES}
_DOWNLOAD = {"GET": _READ_FILES}

# The ACA sessions' protocol, below `ACA_PREFIX` and an optional pool. A request that creates a session needs the scope
# sessions:create, too, which the engine checks. The first path that matches is used.
ACA_ROUTES = (
    Route("/openapi.yaml", ACAOpenAPIHandler, {"GET": _READ}),
    Route("/code/execute", ACAEnvelopeRunHandler, _RUN),
    Route("/python/execute", ACAFirstRunHandler, _RUN),
    Route("/executions", ACARunHandler, _RUN),
    Route("/executions/{execution_id}", ACAExecutionHandler, {"GET": _READ_EXECUTIONS}),
    Route("/files/upload", ACAUploadHandler, _UPLOAD),
    Route("/files", ACAFilesHandler, {**_UPLOAD, **_DOWNLOAD}),
    Route("/files/content/{path}", ACAContentHandler, _DOWNLOAD),
    Route("/files/{path}/content", ACAContentHandler, _DOWNLOAD),
    Route("/files/{path}", ACAFileHandler, {**_DOWNLOAD, "DELETE": _WRITE_FILES}),
    Route(
        "/session",
        ACASessionHandler,
        {"GET": _READ_SESSIONS, "DELETE": _DELETE_SESSIONS},
    ),
    Route("/listSessions", ACASessionsHandler, {"GET": _READ_SESSIONS}),
    Route("/metadata", ACAMetadataHandler, {"GET": _READ}),
    Route("/.management/getSession", ACAManagedSessionHandler, {"POST": _READ_SESSIONS}),
    Route("/.management/listSessions", ACAManagedSessionsHandler, {"POST": _READ_SESSIONS}),
    Route("/.management/stopSession", ACAStopHandler, {"POST": _DELETE_SESSIONS}),
)
_POOL = "(?P<pool>(?:/subscriptions/[^/]+/resourceGroups/[^/]+)?/sessionPools/[^/]+|)"


def _pattern(path: str, methods: Collection[str]) -> str:
    start, rest = re.subn(r"/\{path\}$", "", path.rstrip("/"))
    # A file's path has any characters up to the end; the engine rejects a forbidden one with its reason.
    # A proxy turns .../sessions/ID/files/.. into .../sessions/ID/, which must not delete the session.
    end = "/(?P<path>.+)" if rest else "" if "DELETE" in methods else "/?"
    start = start.replace("{name}", "(?P<name>[A-Za-z0-9_.-]{1,64})")
    return f"/{PREFIX}" + re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9_-]{1,64})", start) + end


def _aca_pattern(path: str) -> str:
    literal = re.escape(path).replace(r"\{execution_id\}", "(?P<execution_id>[A-Za-z0-9_-]{1,64})")
    return f"/{ACA_PREFIX}{_POOL}" + literal.replace(r"\{path\}", "(?P<path>.+)")


def tornado_rules(services: Services) -> list[tuple[str, type[ExecHandler], dict[str, Any]]]:
    """Return the table as Tornado's rules below the base URL, with rules for paths that do not exist."""
    rules: list[tuple[str, type[ExecHandler], dict[str, Any]]] = [
        (_pattern(route.path, route.methods), route.handler, {"services": services, "access": route.methods})
        for route in ROUTES
    ]
    # Without these rules the host would answer unknown paths, also to callers that it does not know.
    rules.append((f"/{PREFIX}(?:/.*)?", NotFoundHandler, {"services": services, "access": {}}))
    rules += [
        (_aca_pattern(route.path), route.handler, {"services": services, "access": route.methods})
        for route in ACA_ROUTES
    ]
    return [*rules, (f"/{ACA_PREFIX}(?:/.*)?", ACANotFoundHandler, {"services": services, "access": {}})]
