"""Base class of all errors, with the machine code and the HTTP status that it suggests."""

from __future__ import annotations

import math
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

    # As `InternalError` has it: a bare `ExecError` is sent under that code, and clients raise `InternalError`.
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

    @property
    def retry_after_header(self) -> str | None:
        """Value of the ``Retry-After`` header: whole seconds, and never less than is needed; None without a time."""
        return None if self.retry_after_seconds is None else str(max(1, math.ceil(self.retry_after_seconds)))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A class without a code of its own is sent under its parent's, which clients then raise.
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
