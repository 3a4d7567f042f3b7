"""Errors that the server sends: rejected requests (4xx), limits (429), and failures of the server (5xx)."""

from __future__ import annotations

from .error_base import ExecError


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
    """The token has expired."""

    code = "token_expired"


class TokenRevoked(Unauthenticated):
    """The token was revoked."""

    code = "token_revoked"


class Forbidden(ExecError):
    """The caller is known and may not do this."""

    code = "forbidden"
    status = 403


class MissingScope(Forbidden):
    """The caller's token lacks the scope that the route needs."""

    code = "missing_scope"


class OwnerOnly(Forbidden):
    """A scoped token may not do this, whatever its scopes."""

    code = "owner_only"


class PolicyDenied(Forbidden):
    """The token's policy does not allow it; the message names the limit and its value."""

    code = "policy_denied"


class IsolationRequired(PolicyDenied):
    """The kernel is less isolated than it must be for the caller."""

    code = "isolation_required"


class TokenTooBroad(Forbidden):
    """The requested token could do more than the caller, or than its policy allows."""

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
    """There is no such thing, or it belongs to another caller."""

    code = "not_found"
    status = 404


class SessionNotFound(NotFound):
    """There is no such session, or it belongs to another caller."""

    code = "session_not_found"


class KernelNotFound(NotFound):
    """The host has no such kernel, or none that can be attached to."""

    code = "kernel_not_found"


class ExecutionNotFound(NotFound):
    """There is no such execution, or it belongs to another caller."""

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
    """The path is not a regular file, or a part of it is not a directory."""

    code = "not_a_file"


class FilesNotAvailable(Conflict):
    """The session has no working directory of its own, so it has no files."""

    code = "files_not_available"


class NotAwaitingApproval(Conflict):
    """The execution does not wait for approval, or not any more."""

    code = "not_awaiting_approval"


class Gone(ExecError):
    """It is no longer there."""

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
    """The server's disk is full; nothing was written."""

    code = "storage_full"
    status = 507
