"""Errors of the server: limits, defects, kernels that do not start, and missing resources (429 and 500 to 507)."""

from __future__ import annotations

from .error_base import ExecError


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
