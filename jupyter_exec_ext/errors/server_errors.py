"""Errors of a server that has failed or cannot serve now (5xx); `request_errors` has those of rejected requests."""

from __future__ import annotations

from .error_base import ExecError


class InternalError(ExecError):
    """A defect of the server; its log has the details under the request id."""

    code = "internal_error"
    status = 500


class KernelStartFailed(ExecError):
    """The kernel could not be started, or ended while it started; the message has the end of its standard error."""

    code = "kernel_start_failed"
    status = 502


class PortUnreachable(ExecError):
    """No program of the session answers at the port, or its answer is not valid HTTP."""

    code = "port_unreachable"
    status = 502


class SearchNotAvailable(ExecError):
    """The server's SQLite has no full-text index of trigrams, so executions cannot be searched."""

    code = "search_not_available"
    status = 501


class Unavailable(ExecError):
    """The server cannot do it now."""

    code = "unavailable"
    status = 503


class ShuttingDown(Unavailable):
    """The server is shutting down."""

    code = "shutting_down"


class Draining(Unavailable):
    """The server is drained: it takes no new sessions, and serves those that it has."""

    code = "draining"


class OutOfResources(Unavailable):
    """The server has no more file descriptors, processes, memory or ports; try again when sessions have ended."""

    code = "out_of_resources"


class StoreUnavailable(Unavailable):
    """The database of executions is locked, read-only or damaged; the message has the remedy."""

    code = "store_unavailable"


class PoliciesInvalid(Unavailable):
    """The server's policies have a mistake; `exec/v1` runs no code until they are corrected and the server restarts."""

    code = "policies_invalid"


class NoServerStarted(Unavailable):
    """A pool of servers needs one more, and the last starts have failed; the message has the JupyterHub's reason."""

    code = "no_server_started"


class ServerUnreachable(Unavailable):
    """The server of a pool that has the session does not answer; it may come back with the session as it was."""

    code = "server_unreachable"


class KernelStartTimeout(ExecError):
    """The kernel did not answer in time after its start."""

    code = "kernel_start_timeout"
    status = 504


class StorageFull(ExecError):
    """The server's disk is full; nothing was written."""

    code = "storage_full"
    status = 507
