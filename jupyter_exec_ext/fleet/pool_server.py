"""A server of the pool as the keeper knows it: state, load, and the sessions on their way to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ..models import ServerLoad
from .placement import ServerSnapshot


class ServerState(str, Enum):
    """State of a server; only a ready one gets new sessions."""

    STARTING = "starting"
    READY = "ready"
    #: It serves the sessions that it has.
    DRAINING = "draining"
    #: It answers that it cannot take sessions.
    UNREADY = "unready"
    #: It has not answered the last probes. It may come back.
    UNREACHABLE = "unreachable"
    #: It has not answered for so long that it was given up.
    LOST = "lost"
    #: It was stopped, or its process has ended.
    ENDED = "ended"


#: States in which a server cannot be asked anything.
AWAY = frozenset({ServerState.UNREACHABLE, ServerState.LOST, ServerState.ENDED})


@dataclass(eq=False)
class Server:
    """A server of the pool.

    Parameters
    ----------
    name : str
        Its name.
    address : str
        URL of its base path; empty while it is unknown.
    started : str
        Time of its start at the Hub.
    state : ServerState
        Its state.
    load : ServerLoad, optional
        Its last answer about its load.
    is_new : bool
        Whether this pool has started it, and it was not ready yet.
    away : asyncio.Event
        Set once it is unreachable, lost or ended. A server that comes back gets a new event.
    problem : str
        Why it is not ready, as far as that is known.
    is_adopted : bool
        Whether it ran before the pool was started, and may have sessions that the pool does not know.
    is_loss : bool
        Whether it has ended, or was given up, without the pool's doing.
    """

    name: str
    address: str = ""
    started: str = ""
    state: ServerState = ServerState.STARTING
    load: ServerLoad | None = None
    is_new: bool = False
    away: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    is_adopted: bool = False
    is_loss: bool = False
    missed_probes: int = 0
    answered_at: float = field(default_factory=time.monotonic)
    failed_at: float | None = None
    empty_since: float | None = None
    # Set to have the server asked again at once.
    is_asked_now: asyncio.Event = field(default_factory=asyncio.Event)
    coming: set[Reservation] = field(default_factory=set)

    @property
    def snapshot(self) -> ServerSnapshot:
        """The server as the placement sees it."""
        sessions, free = (0, None) if self.load is None else (self.load.sessions, self.load.free_places)
        is_open = self.state is ServerState.READY
        return ServerSnapshot(self.name, sessions, len(self.coming), is_open, free, self.failed_at, self.empty_since)

    @property
    def is_drained(self) -> bool:
        """True if it drains, and neither has a session nor runs anything."""
        load = self.load
        is_idle = load is not None and load.draining and not (load.sessions or load.running or load.queued)
        return self.state is ServerState.DRAINING and is_idle and not self.coming

    @property
    def may_come_back(self) -> bool:
        """True if it may have sessions, whether it answers now or not."""
        return bool(self.address) and self.state not in (ServerState.LOST, ServerState.ENDED)

    def change_state(self, state: ServerState) -> None:
        """Change the state, and tell those who wait for an answer of the server if it is away."""
        self.state = state
        if state in AWAY:
            self.away.set()
        elif self.away.is_set():
            self.away = asyncio.Event()

    def note_new_session(self) -> None:
        """Count a session that is being made, until the server's next answer has it."""
        Reservation(self, on_release=lambda: None).done(is_kept=True)

    def note_load(self, load: ServerLoad, asked_at: float) -> None:
        """Keep an answer about the load, whose request was sent at a time of the monotonic clock.

        Sessions that were created before that are part of it, so they are no longer counted as coming.
        """
        self.load = load
        self.coming = {each for each in self.coming if each.kept_at is None or each.kept_at > asked_at}
        is_empty = not (load.sessions or load.running or load.queued or self.coming)
        self.empty_since = (self.empty_since or asked_at) if is_empty else None


@dataclass(eq=False)
class Reservation:
    """A place for a session that is being created.

    Parameters
    ----------
    server : Server
        The server.
    on_release : callable
        Called when the place is free again.
    kept_at : float, optional
        When the session was created.
    """

    server: Server
    on_release: Callable[[], None]
    kept_at: float | None = None

    def __post_init__(self) -> None:
        self.server.coming.add(self)
        self.server.empty_since = None

    def done(self, is_kept: bool) -> None:
        """Say that the session was created, or that it was not and the place is free. Only the first call counts."""
        if self.kept_at is not None or self not in self.server.coming:
            return
        if is_kept:
            self.kept_at = time.monotonic()
        else:
            self.server.coming.discard(self)
            self.on_release()
