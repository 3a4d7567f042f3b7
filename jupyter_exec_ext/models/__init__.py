"""Plain records shared by the server and the clients.

Everything here is a value: no I/O, standard library only. A session and an execution are replaced, never changed
in place, so a record that was handed out stays what it was.
"""

from __future__ import annotations

from .events import (
    Change,
    ClearEvent,
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    FilesEvent,
    InputRequestEvent,
    LateOutput,
    OutputEvent,
    ResponsiveEvent,
    ResultEvent,
    SessionStateLostEvent,
    StateEvent,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from .execution_details import (
    Approval,
    Decision,
    ErrorInfo,
    FileChange,
    FileInfo,
    JSONObject,
    SpooledOutput,
    StateLoss,
    Truncation,
)
from .execution_records import (
    ApprovalAnswer,
    Execution,
    ExecutionRequest,
    ExecutionState,
    IdempotencyKey,
    StoredExecution,
)
from .mime_bundles import ImageContent, Save
from .model_content import Content, TextContent
from .record_list import RecordList
from .session_records import (
    ISOLATION_LEVELS,
    KernelSpecInfo,
    Session,
    SessionRequest,
    SessionState,
    SessionUsage,
    UsageSample,
)
from .token_and_audit_records import (
    AuditKind,
    AuditRecord,
    ChainEnds,
    Grant,
    IssuedToken,
    StoredToken,
    Token,
    TokenRequest,
)

__all__ = [
    "ISOLATION_LEVELS",
    "Approval",
    "ApprovalAnswer",
    "AuditKind",
    "AuditRecord",
    "ChainEnds",
    "Change",
    "ClearEvent",
    "Content",
    "Decision",
    "DisplayEvent",
    "EndEvent",
    "ErrorEvent",
    "ErrorInfo",
    "Execution",
    "ExecutionRequest",
    "ExecutionState",
    "FileChange",
    "FileInfo",
    "FilesEvent",
    "Grant",
    "IdempotencyKey",
    "ImageContent",
    "InputRequestEvent",
    "IssuedToken",
    "JSONObject",
    "KernelSpecInfo",
    "LateOutput",
    "OutputEvent",
    "RecordList",
    "ResponsiveEvent",
    "ResultEvent",
    "Save",
    "Session",
    "SessionRequest",
    "SessionState",
    "SessionStateLostEvent",
    "SessionUsage",
    "SpooledOutput",
    "StateEvent",
    "StateLoss",
    "StoredExecution",
    "StoredToken",
    "StreamEvent",
    "TextContent",
    "Token",
    "TokenRequest",
    "TruncatedEvent",
    "Truncation",
    "UnresponsiveEvent",
    "UsageSample",
]
