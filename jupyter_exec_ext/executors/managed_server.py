"""Base class of the servers that this process starts and stops: context manager and connection."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.server_connection import JupyterConnectionInfo
from ..errors import ExecError

if TYPE_CHECKING:
    from typing_extensions import Self


class ManagedServer(ABC):
    """A server that this process has started. As a context manager it is stopped at the end."""

    @property
    @abstractmethod
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the server."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the server; calling it again does nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection_info!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # A failure to stop must not hide the exception that leaves the context.
        with contextlib.suppress(ExecError) if exc_type is not None else contextlib.nullcontext():
            self.stop()
