"""`Fleet`: protocol of the engine that starts and stops a pool's servers; `hub_fleet` has the one of a JupyterHub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FleetServer:
    """A server as its engine describes it; a stopped one is neither ready nor pending.

    Parameters
    ----------
    name : str
        Its name.
    address : str
        URL of its base path, with a trailing slash; empty while it is unknown.
    started : str
        Time of its last start, which distinguishes it from earlier servers of the same name.
    is_ready : bool
        Whether the engine says that it runs.
    pending : str
        The change under way, such as ``"spawn"`` or ``"stop"``; empty for none.
    """

    name: str
    address: str = ""
    started: str = ""
    is_ready: bool = False
    pending: str = ""

    @property
    def is_stopped(self) -> bool:
        """True if it neither runs nor is about to run."""
        return not (self.is_ready or self.pending)


class Fleet(Protocol):
    """Engine that starts and stops servers. Every method raises `Unavailable` while the engine cannot be reached."""

    async def list(self) -> Sequence[FleetServer]:
        """Return all servers, also stopped ones that have not been removed."""

    async def start(self, name: str) -> None:
        """Start a server and wait until the engine says that it is ready.

        Raises
        ------
        NoServerStarted
            If the engine could not start it; the message has the engine's reason.
        """

    async def stop(self, name: str, *, removes: bool = True) -> None:
        """Stop a server and wait until it has ended; one that is gone is no error.

        Parameters
        ----------
        name : str
            The server.
        removes : bool
            Whether the engine forgets the server, with what it stores for it.
        """
