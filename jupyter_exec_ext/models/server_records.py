"""State of a server for those who watch it: whether it takes sessions, and how loaded it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of a server to take new sessions.

    Parameters
    ----------
    ready : bool
        False while it is drained, while it stops, and if its policies have a mistake or its store a fault.
    draining : bool
        It takes no new sessions and serves those that it has.
    """

    ready: bool
    draining: bool


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Load of a server.

    Parameters
    ----------
    server_name : str
        The server's name among several (``ExecEngine.server_name``); empty without one.
    draining : bool
        See `Readiness`.
    sessions : int
        Sessions that have not ended.
    running, queued : int
        Executions that run, and those that wait for their turn or for approval.
    free_places : int or None
        Sessions for which there is room by the server's limit; 0 while it is drained, None without a limit.
    pooled_kernels : int
        Kernels that are ready for sessions to come.
    descriptors_used, descriptors_allowed : int or None
        Open files of the server's process, and its limit; None where the system does not tell.
    kernels_pss_bytes : int
        Memory of all kernels with the processes below them. Memory that processes share is counted once. The figure is
        some seconds old.
    """

    server_name: str
    draining: bool
    sessions: int
    running: int
    queued: int
    free_places: int | None
    pooled_kernels: int
    descriptors_used: int | None
    descriptors_allowed: int | None
    kernels_pss_bytes: int
