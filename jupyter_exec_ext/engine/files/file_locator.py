"""Locator of a session's files: on this machine, on another one, or those of a kernel that somebody else uses."""

from __future__ import annotations

from ...models import Session
from ..ports import KernelHost, SessionFiles
from .remote_files import ATTACHED


class FileLocator:
    """Chooses the implementation of `SessionFiles` by the place of a session's kernel.

    Parameters
    ----------
    local : SessionFiles
        For kernels on this machine.
    remote : SessionFiles
        For kernels on other machines.
    host : KernelHost
        Knows which kernelspecs run on other machines.
    """

    def __init__(self, local: SessionFiles, remote: SessionFiles, host: KernelHost) -> None:
        self.local = local
        self._remote = remote
        self._host = host

    def files_of(self, session: Session) -> SessionFiles:
        """Return the files of a session."""
        if session.attached:
            return ATTACHED
        is_remote = session.isolation == "remote" or self._host.runs_elsewhere(session.kernel_name)
        return self._remote if is_remote else self.local
