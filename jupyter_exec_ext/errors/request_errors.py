"""Errors that the server sends for rejected requests (4xx); `server_errors` has those of its own failures (5xx)."""

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


class PackagesNotFound(InvalidRequest):
    """A requirement cannot be read, has no wheels that the server accepts, or exceeds a limit of downloads."""

    code = "packages_not_found"


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
    """The caller is known and may not do this; the deployment's authorizer has refused."""

    code = "forbidden"
    status = 403


class MissingScope(Forbidden):
    """The caller's token lacks the scope that the route needs."""

    code = "missing_scope"


class OwnerOnly(Forbidden):
    """A scoped token may not do this, whatever its scopes."""

    code = "owner_only"


class PolicyDenied(Forbidden):
    """The token's policy does not allow it; the message and `limit` name the limit and its value."""

    code = "policy_denied"


class IsolationRequired(PolicyDenied):
    """The kernel is less isolated than the caller's policy or the request requires."""

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
    """The host runs no such kernel, or it is a session's own and cannot be attached to."""

    code = "kernel_not_found"


class ExecutionNotFound(NotFound):
    """There is no such execution, or it belongs to another caller."""

    code = "execution_not_found"


class FileNotFound(NotFound):
    """The session has no such file."""

    code = "file_not_found"


class OutputNotFound(NotFound):
    """The execution has not ended, or its `truncated.spooled` has no output of this name."""

    code = "output_not_found"


class PortNotFound(NotFound):
    """The session has no such open port."""

    code = "port_not_found"


class CheckpointNotFound(NotFound):
    """The session has no such checkpoint; it may have been deleted, or have expired."""

    code = "checkpoint_not_found"


class TokenNotFound(NotFound):
    """There is no such token, or it is not the caller's to manage."""

    code = "token_not_found"


class SecretNotFound(NotFound):
    """There is no such secret."""

    code = "secret_not_found"


class GrantNotFound(NotFound):
    """There is no such grant of a kernel."""

    code = "grant_not_found"


class MethodNotAllowed(ExecError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405


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
    """A limit such as `max_file_bytes` was reached; the message names it and its value."""

    code = "quota_exceeded"


class WrongServer(ExecError):
    """The session or execution is on another server, which its id and the message name; send the request there."""

    code = "wrong_server"
    status = 421


class UnsupportedMediaType(ExecError):
    """The request body is not JSON."""

    code = "unsupported_media_type"
    status = 415


class LimitReached(ExecError):
    """A limit was reached; the message names it and its value."""

    code = "limit_reached"
    status = 429


class TooManySessions(LimitReached):
    """The server's `max_sessions` was reached."""

    code = "too_many_sessions"


class TooManyCheckpoints(LimitReached):
    """A limit on checkpoints was reached: the server's `max_checkpoints`; delete one first."""

    code = "too_many_checkpoints"


class TooManyKernels(LimitReached):
    """The host's limit on kernels was reached."""

    code = "too_many_kernels"


class TooManyTokens(LimitReached):
    """The server's `max_tokens` was reached."""

    code = "too_many_tokens"


class TooManyAttempts(LimitReached):
    """The token is wrong, and too many wrong ones came from this address; a valid token still works."""

    code = "too_many_attempts"


class PolicyLimitReached(LimitReached):
    """A limit of the token's policy was reached; the message and `limit` name it and its value."""

    code = "policy_limit_reached"


class TooManyPortRequests(LimitReached):
    """There are too many requests to the ports of a session, at once or within a minute."""

    code = "too_many_port_requests"


class PoolFull(LimitReached):
    """All servers of a pool have as many sessions as they may, and there may be no more servers."""

    code = "pool_full"


class PrincipalFull(LimitReached):
    """The caller has as many sessions on a pool's servers as one caller may."""

    code = "principal_full"


class QueueFull(LimitReached):
    """The session has `max_queued_executions` waiting executions, or too many downloads of packages wait."""

    code = "queue_full"
