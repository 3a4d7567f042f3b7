"""One tree of errors for the server and the clients.

    ExecError
    ├── InvalidRequest              400  the request itself is wrong
    │   ├── InvalidJSON
    │   ├── KernelSpecNotFound
    │   ├── LanguageNotSupported
    │   ├── PolicyNotFound
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
    ├── NotFound                    404  not there, or not yours
    │   ├── SessionNotFound
    │   ├── KernelNotFound
    │   ├── ExecutionNotFound
    │   ├── FileNotFound
    │   ├── OutputNotFound
    │   └── TokenNotFound
    ├── MethodNotAllowed            405
    ├── Conflict                    409
    │   ├── NoInputRequested
    │   ├── IdempotencyKeyReused
    │   ├── NotAFile
    │   ├── FilesNotAvailable
    │   └── NotAwaitingApproval
    ├── Gone                        410  was there
    │   ├── SessionEnded
    │   ├── LogExpired
    │   └── OutputExpired
    ├── PayloadTooLarge             413
    │   └── QuotaExceeded
    ├── UnsupportedMediaType        415
    ├── LimitReached                429  try again when there is room
    │   ├── TooManySessions
    │   ├── TooManyKernels
    │   ├── TooManyTokens
    │   ├── TooManyAttempts
    │   ├── PolicyLimitReached
    │   └── QueueFull
    ├── InternalError               500
    ├── KernelStartFailed           502
    ├── Unavailable                 503  try again later
    │   ├── ShuttingDown
    │   ├── OutOfResources
    │   └── StoreUnavailable
    ├── KernelStartTimeout          504
    ├── StorageFull                 507
    └── ClientError                      raised by the client alone, never sent
        ├── ConnectionFailed             nothing was sent: safe to try again
        ├── ConnectionLost               sent, and the answer never came: the outcome is unknown
        ├── UnexpectedAnswer             something answered, but not this API
        ├── ApiNotFound                  a Jupyter server without this extension
        ├── ServerStartFailed            a server that was to be started elsewhere did not come up
        ├── ServerStartTimeout           ... or not in time
        └── TransferCorrupted            a file's content is not what was sent

Code that fails is not an error of this tree: it is an execution that ended in ``error``.

Each class carries the stable machine `code` of the HTTP API and suggests an HTTP status, without knowing any web
framework (the idea is h11's). The client raises the same class again from the `code` it received.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class ExecError(Exception):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    message : str
        What went wrong and, where there is one, the remedy. Shown to the caller: holds no secret.
    retry_after_seconds : float, optional
        When it makes sense to try again.
    request_id : str, optional
        The id under which the server logged the failure.
    limit : mapping, optional
        The limit that stands against it: ``policy``, ``name`` and ``value``.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    _by_code: ClassVar[dict[str, type[ExecError]]] = {}

    def __init__(
        self,
        message: str = "",
        *,
        retry_after_seconds: float | None = None,
        request_id: str | None = None,
        limit: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.request_id = request_id
        self.limit = limit

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:
            if cls.code in ExecError._by_code:
                raise TypeError(f"error code {cls.code!r} is taken by {ExecError._by_code[cls.code].__name__}")
            ExecError._by_code[cls.code] = cls

    @staticmethod
    def for_code(code: str) -> type[ExecError] | None:
        """Return the class that carries `code`, or None for a code this version does not know."""
        return ExecError._by_code.get(code)

    @staticmethod
    def codes() -> dict[str, type[ExecError]]:
        """Return all codes and their classes."""
        return dict(ExecError._by_code)


class InvalidRequest(ExecError):
    """A field is missing, unknown or has a wrong value."""

    code = "invalid_request"
    status = 400


class InvalidJSON(InvalidRequest):
    """The body is not a JSON object in UTF-8."""

    code = "invalid_json"


class KernelSpecNotFound(InvalidRequest):
    """No such kernelspec is installed, or the caller may not use it."""

    code = "kernelspec_not_found"


class LanguageNotSupported(InvalidRequest):
    """The session's kernel cannot run this language."""

    code = "language_not_supported"


class PolicyNotFound(InvalidRequest):
    """The server has no policy of this name."""

    code = "policy_not_found"


class PropertiesMissing(InvalidRequest):
    """A request of the ACA protocol has the form of another api-version, or lacks what a run needs."""

    code = "properties_missing"


class Unauthenticated(ExecError):
    """No credentials, or wrong ones."""

    code = "unauthenticated"
    status = 401


class TokenExpired(Unauthenticated):
    """The token was right, and its time is over."""

    code = "token_expired"


class TokenRevoked(Unauthenticated):
    """The token was right, and it has been revoked."""

    code = "token_revoked"


class Forbidden(ExecError):
    """The caller is known and may not do this."""

    code = "forbidden"
    status = 403


class MissingScope(Forbidden):
    """The caller's token lacks the scope that the route needs."""

    code = "missing_scope"


class OwnerOnly(Forbidden):
    """Whoever comes with a scoped token may not do this, whatever its scopes."""

    code = "owner_only"


class PolicyDenied(Forbidden):
    """The token's policy does not allow it; the message names the limit and its value."""

    code = "policy_denied"


class IsolationRequired(PolicyDenied):
    """The kernel is less isolated than it must be for the caller."""

    code = "isolation_required"


class TokenTooBroad(Forbidden):
    """A token was asked for that could do more than whoever asks, or than its policy allows."""

    code = "token_too_broad"


class HostNotAllowed(Forbidden):
    """The Host header is not one this server answers to."""

    code = "host_not_allowed"


class OriginNotAllowed(Forbidden):
    """A browser sent the request from another site."""

    code = "origin_not_allowed"


class XSRFCheckFailed(Forbidden):
    """A cookie-authenticated request came without the XSRF token."""

    code = "xsrf_check_failed"


class NotFound(ExecError):
    """There is no such thing, or it belongs to somebody else."""

    code = "not_found"
    status = 404


class SessionNotFound(NotFound):
    """There is no such session, or it belongs to somebody else."""

    code = "session_not_found"


class KernelNotFound(NotFound):
    """The host has no such kernel, or none that can be attached to."""

    code = "kernel_not_found"


class ExecutionNotFound(NotFound):
    """There is no such execution, or it belongs to somebody else."""

    code = "execution_not_found"


class FileNotFound(NotFound):
    """The session has no such file."""

    code = "file_not_found"


class OutputNotFound(NotFound):
    """The execution has no output of this name beyond its record."""

    code = "output_not_found"


class TokenNotFound(NotFound):
    """There is no such token, or it is not the caller's to manage."""

    code = "token_not_found"


class MethodNotAllowed(ExecError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405


class Conflict(ExecError):
    """The request does not fit the present state."""

    code = "conflict"
    status = 409


class NoInputRequested(Conflict):
    """The execution is not waiting for input."""

    code = "no_input_requested"


class IdempotencyKeyReused(Conflict):
    """The idempotency key was sent before, with a different request."""

    code = "idempotency_key_reused"


class NotAFile(Conflict):
    """What is there is not a regular file, or the way to it leads over something that is not a directory."""

    code = "not_a_file"


class FilesNotAvailable(Conflict):
    """The session has no working directory of its own, so there are no files to speak of."""

    code = "files_not_available"


class NotAwaitingApproval(Conflict):
    """The execution does not wait for approval, or not any more."""

    code = "not_awaiting_approval"


class Gone(ExecError):
    """It was there and is no more."""

    code = "gone"
    status = 410


class SessionEnded(Gone):
    """The session has ended; the message says why."""

    code = "session_ended"


class LogExpired(Gone):
    """The execution's event log is no longer kept."""

    code = "log_expired"


class OutputExpired(Gone):
    """The output is no longer kept, or not as it was written."""

    code = "output_expired"


class PayloadTooLarge(ExecError):
    """The request body exceeds the limit named in the message."""

    code = "payload_too_large"
    status = 413


class QuotaExceeded(PayloadTooLarge):
    """A limit on files was reached; the message names it and its value."""

    code = "quota_exceeded"


class UnsupportedMediaType(ExecError):
    """The request body is not JSON."""

    code = "unsupported_media_type"
    status = 415


class LimitReached(ExecError):
    """A limit was reached; the message names it and its value."""

    code = "limit_reached"
    status = 429


class TooManySessions(LimitReached):
    """The server's limit on sessions was reached."""

    code = "too_many_sessions"


class TooManyKernels(LimitReached):
    """The host's limit on kernels was reached."""

    code = "too_many_kernels"


class TooManyTokens(LimitReached):
    """The server's limit on tokens was reached."""

    code = "too_many_tokens"


class TooManyAttempts(LimitReached):
    """The token is wrong, and too many wrong tokens came from this address."""

    code = "too_many_attempts"


class PolicyLimitReached(LimitReached):
    """A limit of the token's policy was reached; the message names it and its value."""

    code = "policy_limit_reached"


class QueueFull(LimitReached):
    """The session has as many queued executions as it may have."""

    code = "queue_full"


class InternalError(ExecError):
    """A defect of the server; its log has the details under the request id."""

    code = "internal_error"
    status = 500


class KernelStartFailed(ExecError):
    """The kernel process could not be started, or ended while it started."""

    code = "kernel_start_failed"
    status = 502


class Unavailable(ExecError):
    """The server cannot do it now."""

    code = "unavailable"
    status = 503


class ShuttingDown(Unavailable):
    """The server is shutting down."""

    code = "shutting_down"


class OutOfResources(Unavailable):
    """The server has no more file descriptors, processes, memory or ports; some come free when sessions end."""

    code = "out_of_resources"


class StoreUnavailable(Unavailable):
    """The database that keeps executions is locked, read-only or broken."""

    code = "store_unavailable"


class KernelStartTimeout(ExecError):
    """The kernel did not answer in time after its start."""

    code = "kernel_start_timeout"
    status = 504


class StorageFull(ExecError):
    """The server's disk has no room for what would have to be written; nothing of it was kept."""

    code = "storage_full"
    status = 507


class ClientError(ExecError):
    """Raised by the client; no server sends it."""

    code = "client_error"
    status = 0


class ConnectionFailed(ClientError):
    """The server could not be reached; nothing was sent."""

    code = "connection_failed"


class ConnectionLost(ClientError):
    """The request was sent and its answer never came: what it did is unknown.

    Parameters
    ----------
    idempotency_key : str, optional
        The key of the run that was asked for: the same code with the same key is the same execution, so that it runs
        once, however often it is asked for.
    execution_id : str, optional
        The execution, if the server had named it.
    """

    code = "connection_lost"

    def __init__(
        self,
        message: str = "",
        *,
        idempotency_key: str | None = None,
        execution_id: str | None = None,
        retry_after_seconds: float | None = None,
        request_id: str | None = None,
        limit: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds, request_id=request_id, limit=limit)
        self.idempotency_key = idempotency_key
        self.execution_id = execution_id


class ServerLost(ClientError):
    """The JupyterHub says that the server was stopped or has failed: what ran there is gone."""

    code = "server_lost"


class UnexpectedAnswer(ClientError):
    """Something answered, but not in this API's terms."""

    code = "unexpected_answer"


class ApiNotFound(ClientError):
    """The server has no ``exec/v1`` API."""

    code = "api_not_found"


class ServerStartFailed(ClientError):
    """A JupyterHub or Binder did not bring the server up; the message holds what it said."""

    code = "server_start_failed"


class ServerStartTimeout(ClientError):
    """A JupyterHub or Binder did not bring the server up in time."""

    code = "server_start_timeout"


class TransferCorrupted(ClientError):
    """A file arrived with another content than it has; most likely it was changed while it was being read."""

    code = "transfer_corrupted"
