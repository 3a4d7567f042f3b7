"""One tree of errors for the server and the clients.

    ExecError
    ├── InvalidRequest              400  the request itself is wrong
    │   ├── InvalidJSON
    │   ├── KernelSpecNotFound
    │   ├── LanguageNotSupported
    │   ├── PolicyNotFound
    │   ├── PackagesNotFound
    │   └── PropertiesMissing
    ├── Unauthenticated             401  no credentials, or wrong ones
    │   ├── TokenExpired
    │   └── TokenRevoked
    ├── Forbidden                   403  known, but not allowed
    │   ├── MissingScope
    │   ├── OwnerOnly
    │   ├── PolicyDenied
    │   │   └── IsolationRequired
    │   ├── TokenTooBroad
    │   ├── HostNotAllowed
    │   ├── OriginNotAllowed
    │   └── XSRFCheckFailed
    ├── NotFound                    404  not there, or another caller's
    │   ├── SessionNotFound
    │   ├── KernelNotFound
    │   ├── ExecutionNotFound
    │   ├── FileNotFound
    │   ├── OutputNotFound
    │   ├── PortNotFound
    │   ├── CheckpointNotFound
    │   ├── TokenNotFound
    │   ├── GrantNotFound
    │   └── SecretNotFound
    ├── MethodNotAllowed            405
    ├── Conflict                    409
    │   ├── NoInputRequested
    │   ├── IdempotencyKeyReused
    │   ├── NotAFile
    │   ├── FilesNotAvailable
    │   ├── PortsNotAvailable
    │   ├── CheckpointUnsupported
    │   ├── CheckpointHindered
    │   ├── CheckpointFailed
    │   └── NotAwaitingApproval
    ├── Gone                        410  was there
    │   ├── SessionEnded
    │   ├── LogExpired
    │   └── OutputExpired
    ├── PayloadTooLarge             413
    │   └── QuotaExceeded
    ├── UnsupportedMediaType        415
    ├── WrongServer                 421  on another one of several servers
    ├── LimitReached                429  try again when there is room
    │   ├── TooManySessions
    │   ├── TooManyCheckpoints
    │   ├── TooManyKernels
    │   ├── TooManyTokens
    │   ├── TooManyAttempts
    │   ├── PolicyLimitReached
    │   ├── TooManyPortRequests
    │   ├── PoolFull
    │   ├── PrincipalFull
    │   └── QueueFull
    ├── InternalError               500
    ├── KernelStartFailed           502
    ├── PortUnreachable             502
    ├── SearchNotAvailable          501
    ├── Unavailable                 503  try again later
    │   ├── ShuttingDown
    │   ├── Draining
    │   ├── OutOfResources
    │   ├── StoreUnavailable
    │   ├── NoServerStarted
    │   ├── ServerUnreachable
    │   └── PoliciesInvalid
    ├── KernelStartTimeout          504
    ├── StorageFull                 507
    └── ClientError                      raised by the client alone, never sent
        ├── ConnectionFailed             nothing was sent: safe to try again
        ├── ConnectionLost               sent, and the answer never came: the outcome is unknown
        ├── ServerLost                   the Hub reports that the server has ended
        ├── CodeError                    code failed, and its caller has asked for an error
        ├── UnexpectedAnswer             something answered, but not this API
        ├── ApiNotFound                  a Jupyter server without this extension
        ├── ServerStartFailed            a server that was to be started elsewhere did not come up
        ├── ServerStartTimeout           ... or not in time
        └── TransferCorrupted            a file's content is not what was sent

Code that fails raises nothing: it is an execution that ended in ``error``. `Execution.raise_for_error` and
``run(..., check=True)`` raise `CodeError` for it.

Each class carries the stable machine `code` of the HTTP API and suggests an HTTP status, without knowing any web
framework (the idea is h11's). The client raises the same class again from the `code` it received.
"""

from __future__ import annotations

from .client_errors import (
    ApiNotFound,
    ClientError,
    CodeError,
    ConnectionFailed,
    ConnectionLost,
    ServerLost,
    ServerStartFailed,
    ServerStartTimeout,
    TransferCorrupted,
    UnexpectedAnswer,
)
from .conflict_errors import (
    CheckpointFailed,
    CheckpointHindered,
    CheckpointUnsupported,
    Conflict,
    FilesNotAvailable,
    IdempotencyKeyReused,
    NoInputRequested,
    NotAFile,
    NotAwaitingApproval,
    PortsNotAvailable,
)
from .error_base import (
    ExecError,
)
from .request_errors import (
    CheckpointNotFound,
    ExecutionNotFound,
    FileNotFound,
    Forbidden,
    Gone,
    GrantNotFound,
    HostNotAllowed,
    InvalidJSON,
    InvalidRequest,
    IsolationRequired,
    KernelNotFound,
    KernelSpecNotFound,
    LanguageNotSupported,
    LimitReached,
    LogExpired,
    MethodNotAllowed,
    MissingScope,
    NotFound,
    OriginNotAllowed,
    OutputExpired,
    OutputNotFound,
    OwnerOnly,
    PackagesNotFound,
    PayloadTooLarge,
    PolicyDenied,
    PolicyLimitReached,
    PolicyNotFound,
    PoolFull,
    PortNotFound,
    PrincipalFull,
    PropertiesMissing,
    QueueFull,
    QuotaExceeded,
    SecretNotFound,
    SessionEnded,
    SessionNotFound,
    TokenExpired,
    TokenNotFound,
    TokenRevoked,
    TokenTooBroad,
    TooManyAttempts,
    TooManyCheckpoints,
    TooManyKernels,
    TooManyPortRequests,
    TooManySessions,
    TooManyTokens,
    Unauthenticated,
    UnsupportedMediaType,
    WrongServer,
    XSRFCheckFailed,
)
from .server_errors import (
    Draining,
    InternalError,
    KernelStartFailed,
    KernelStartTimeout,
    NoServerStarted,
    OutOfResources,
    PoliciesInvalid,
    PortUnreachable,
    SearchNotAvailable,
    ServerUnreachable,
    ShuttingDown,
    StorageFull,
    StoreUnavailable,
    Unavailable,
)

__all__ = [
    "ApiNotFound",
    "CheckpointFailed",
    "CheckpointHindered",
    "CheckpointNotFound",
    "CheckpointUnsupported",
    "ClientError",
    "CodeError",
    "Conflict",
    "ConnectionFailed",
    "ConnectionLost",
    "Draining",
    "ExecError",
    "ExecutionNotFound",
    "FileNotFound",
    "FilesNotAvailable",
    "Forbidden",
    "Gone",
    "GrantNotFound",
    "HostNotAllowed",
    "IdempotencyKeyReused",
    "InternalError",
    "InvalidJSON",
    "InvalidRequest",
    "IsolationRequired",
    "KernelNotFound",
    "KernelSpecNotFound",
    "KernelStartFailed",
    "KernelStartTimeout",
    "LanguageNotSupported",
    "LimitReached",
    "LogExpired",
    "MethodNotAllowed",
    "MissingScope",
    "NoInputRequested",
    "NoServerStarted",
    "NotAFile",
    "NotAwaitingApproval",
    "NotFound",
    "OriginNotAllowed",
    "OutOfResources",
    "OutputExpired",
    "OutputNotFound",
    "OwnerOnly",
    "PackagesNotFound",
    "PayloadTooLarge",
    "PoliciesInvalid",
    "PolicyDenied",
    "PolicyLimitReached",
    "PolicyNotFound",
    "PoolFull",
    "PortNotFound",
    "PortUnreachable",
    "PortsNotAvailable",
    "PrincipalFull",
    "PropertiesMissing",
    "QueueFull",
    "QuotaExceeded",
    "SearchNotAvailable",
    "SecretNotFound",
    "ServerLost",
    "ServerStartFailed",
    "ServerStartTimeout",
    "ServerUnreachable",
    "SessionEnded",
    "SessionNotFound",
    "ShuttingDown",
    "StorageFull",
    "StoreUnavailable",
    "TokenExpired",
    "TokenNotFound",
    "TokenRevoked",
    "TokenTooBroad",
    "TooManyAttempts",
    "TooManyCheckpoints",
    "TooManyKernels",
    "TooManyPortRequests",
    "TooManySessions",
    "TooManyTokens",
    "TransferCorrupted",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "UnsupportedMediaType",
    "WrongServer",
    "XSRFCheckFailed",
]

# Tracebacks and pickles name the public module.
for _error in (ExecError, *ExecError.codes().values()):
    _error.__module__ = __name__
