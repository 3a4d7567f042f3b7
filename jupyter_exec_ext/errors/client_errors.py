"""Errors that only the client raises: connections, answers and transfers; no server sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .error_base import ExecError


class ClientError(ExecError):
    """Raised by the client; no server sends it."""

    code = "client_error"
    status = 0  # it never stands in an answer


class ConnectionFailed(ClientError):
    """The server could not be reached; nothing was sent."""

    code = "connection_failed"


class ConnectionLost(ClientError):
    """The request was sent and its answer never came, so its outcome is unknown.

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
    """The JupyterHub reports that the server was stopped or has failed, with its sessions."""

    code = "server_lost"


class UnexpectedAnswer(ClientError):
    """The answer is not one of this API."""

    code = "unexpected_answer"


class ApiNotFound(ClientError):
    """The server has no ``exec/v1`` API."""

    code = "api_not_found"


class CodeError(ClientError):
    """The code failed, was stopped, or its kernel died; raised only where a caller asks for it.

    Parameters
    ----------
    message : str
        Its traceback, or how it ended.
    execution : Execution, optional
        The execution, with all that it has printed and shown.
    """

    code = "code_error"

    def __init__(
        self,
        message: str = "",
        *,
        execution: Any = None,  # an `Execution`, whose module this one cannot import
        retry_after_seconds: float | None = None,
        request_id: str | None = None,
        limit: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds, request_id=request_id, limit=limit)
        self.execution = execution


class ServerStartFailed(ClientError):
    """A JupyterHub or Binder did not bring the server up; the message holds what it said."""

    code = "server_start_failed"


class ServerStartTimeout(ClientError):
    """A JupyterHub or Binder did not bring the server up in time."""

    code = "server_start_timeout"


class TransferCorrupted(ClientError):
    """A file's content differs from its digest; most likely it was changed while it was read."""

    code = "transfer_corrupted"
