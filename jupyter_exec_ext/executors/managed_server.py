"""Base class of the servers that this process starts and stops, and the command of their child processes."""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.fork_safety import OwnerProcess
from ..client.server_connection import JupyterConnectionInfo
from ..errors import ExecError

if TYPE_CHECKING:
    from typing_extensions import Self


class ManagedServer(ABC):
    """A server that this process has started. As a context manager it is stopped at the end; not by a forked child."""

    _context_owner: OwnerProcess

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
        self._context_owner = OwnerProcess()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if not self._context_owner.is_current():
            return
        # A failure to stop must not hide the exception that leaves the context.
        with contextlib.suppress(ExecError) if exc_type is not None else contextlib.nullcontext():
            self._end_context()

    def _end_context(self) -> None:
        self.stop()


def command_of_module(module: str) -> list[str]:
    """Return a command that calls the `main` of a module of this package in another process."""
    # Unlike ``python -m``, it keeps the current directory out of the module path: it may have a `secrets.py`.
    code = f"import sys\nsys.path[:] = [path for path in sys.path if path]\nfrom {module} import main\nmain()\n"
    return [sys.executable, "-c", code]
