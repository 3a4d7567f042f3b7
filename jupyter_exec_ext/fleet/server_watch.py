"""Probes of one server, and the state that follows from its answers; the keeper decides what is done about it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Protocol

from ..errors import ExecError
from ..models import Readiness
from .pool_server import Server, ServerState
from .server_requests import ServerRequests

PROBE_SECONDS = 2.0
PROBES_UNTIL_UNREACHABLE = 3
_SETTLED = (ServerState.STARTING, ServerState.LOST, ServerState.ENDED)


class Watcher(Protocol):
    """The keeper, as far as a watch calls it."""

    def on_answer(self, server: Server) -> None:
        """Learn that a server has answered, with its state and load."""

    def on_lost(self, server: Server) -> None:
        """Learn that a server has been silent for too long, or has not become ready in that time."""


class ServerWatch:
    """Probes a server every `PROBE_SECONDS` until it has ended.

    Parameters
    ----------
    server : Server
        The server, whose state it changes.
    requests : ServerRequests
        Asks it.
    lost_after_seconds : float
        After which silence it is lost.
    watcher : Watcher
        Is told.
    """

    def __init__(self, server: Server, requests: ServerRequests, lost_after_seconds: float, watcher: Watcher) -> None:
        self._server = server
        self._requests = requests
        self._lost_after_seconds = lost_after_seconds
        self._watcher = watcher

    async def run(self) -> None:
        """Probe the server until it has ended."""
        while self._server.state is not ServerState.ENDED:
            began_at = time.monotonic()
            await self.probe()
            left_seconds = began_at + PROBE_SECONDS - time.monotonic()
            await pause(self._server.is_asked_now, PROBE_SECONDS / 20, left_seconds)

    async def probe(self) -> None:
        """Ask the server whether it is ready, and then for its load.

        Only the first answer counts as a sign of life. It needs no token, so it comes while the Hub, which the server
        asks about tokens, is away.
        """
        server = self._server
        try:
            readiness = await self._requests.read_readiness(server)
        except ExecError as error:
            self._note_missed_probe(error.message)
            return
        server.missed_probes = 0
        asked_at = time.monotonic()
        try:
            if server.state is ServerState.LOST:  # its clients were told that its sessions are no more
                await self._requests.delete_sessions(server)
                return
            server.note_load(await self._requests.read_load(server), asked_at)
            server.problem = "" if readiness.ready or readiness.draining else "it is not ready; see its own trouble"
        except ExecError as error:  # it keeps its state and its last load
            server.problem = error.message
        self._note_answer(readiness)

    def _note_answer(self, readiness: Readiness) -> None:
        server = self._server
        if server.state is ServerState.STARTING and (server.load is None or not readiness.ready):
            self._give_up_if_due()
        elif server.state not in (ServerState.LOST, ServerState.ENDED):
            server.answered_at = time.monotonic()
            closed = ServerState.DRAINING if readiness.draining else ServerState.UNREADY
            server.change_state(ServerState.READY if readiness.ready else closed)
            self._watcher.on_answer(server)

    def _note_missed_probe(self, problem: str) -> None:
        server = self._server
        server.missed_probes += 1
        server.problem = problem
        if server.missed_probes >= PROBES_UNTIL_UNREACHABLE and server.state not in _SETTLED:
            server.change_state(ServerState.UNREACHABLE)
        self._give_up_if_due()

    def _give_up_if_due(self) -> None:
        is_due = time.monotonic() - self._server.answered_at >= self._lost_after_seconds
        if is_due and self._server.state in (ServerState.STARTING, ServerState.UNREACHABLE):
            self._watcher.on_lost(self._server)


async def pause(event: asyncio.Event, least_seconds: float, most_seconds: float) -> None:
    """Wait until the longest time is over, or until the event is set if that is after the shortest time."""
    await asyncio.sleep(least_seconds)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, most_seconds - least_seconds))
    event.clear()
