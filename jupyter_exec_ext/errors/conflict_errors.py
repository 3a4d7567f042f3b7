"""Errors of requests that do not fit the present state (409)."""

from __future__ import annotations

from .error_base import ExecError


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
    """The session has no working directory of its own, or its kernel runs on another machine that offers no files.

    A server without `session_directories` has none for all sessions.
    """

    code = "files_not_available"


class PortsNotAvailable(Conflict):
    """The session's kernel is not one whose ports the server can reach; the message says why."""

    code = "ports_not_available"


class CheckpointUnsupported(Conflict):
    """There can be no checkpoints of the session's kernel; the message says why."""

    code = "checkpoint_unsupported"


class CheckpointHindered(Conflict):
    """The kernel has something that a checkpoint could not keep, which the message names; ``force`` leaves it out."""

    code = "checkpoint_hindered"


class CheckpointFailed(Conflict):
    """The checkpoint could not be made, or is lost; the session goes on as it was."""

    code = "checkpoint_failed"


class NotAwaitingApproval(Conflict):
    """The execution does not wait for approval, or not any more."""

    code = "not_awaiting_approval"
