"""Base of sessions of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

import contextlib
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ...errors import ExecError
from ..api.steps import Operation
from ..fork_safety import OwnerProcess
from ..server_connection import JupyterConnectionInfo
from .driver import AioDriver

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncExecSessionBase(ABC):
    """Context manager and connection of both kinds of session."""

    def __init__(self, driver: AioDriver, *, is_own: bool) -> None:
        self._driver = driver
        self._must_be_closed = is_own
        self._owner = OwnerProcess()

    def __del__(self) -> None:
        # An instance whose `__init__` failed has no such attribute.
        if getattr(self, "_must_be_closed", False):
            advice = "use it in a 'with' block, or close it"
            warnings.warn(f"{self!r} was not closed; {advice}", ResourceWarning, stacklevel=2, source=self)

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the session's server."""
        return self._driver.connection

    @abstractmethod
    def _closing(self, *, is_hurried: bool) -> Operation[None]:
        """Return the operation that ends the session; a hurried one makes no retries."""

    async def __aenter__(self) -> Self:
        self._owner = OwnerProcess()
        return self

    async def __aexit__(self, exc_type: object, *_: object) -> None:
        if not self._owner.is_current():
            self.detach()
            return
        if exc_type is None:
            await self.close()
            return
        self._must_be_closed = False
        with contextlib.suppress(ExecError):  # the exception that leaves the context is the cause
            await self._driver.perform_to_the_end(self._closing(is_hurried=True))

    def detach(self) -> None:
        """Keep the session on the server when this object is gone, without a `ResourceWarning`."""
        self._must_be_closed = False

    async def close(self) -> None:
        """End the session and its kernel on the server; running code ends as cancelled."""
        self._must_be_closed = False
        await self._driver.perform_to_the_end(self._closing(is_hurried=False))
