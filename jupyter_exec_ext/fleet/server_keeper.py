"""`Keeper`: watches the pool's servers, keeps as many as are needed, and reserves places for sessions on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from ..errors import ExecError, NoServerStarted, NotFound, PoolFull, Unavailable
from . import server_watch
from .fleet import Fleet, FleetServer
from .place_queue import PlaceQueue
from .placement import (
    choose,
    is_personal_server,
    is_pool_server,
    make_server_name,
    personal_server_name,
    plan_servers,
)
from .pool_server import Reservation, Server, ServerState
from .pool_settings import ExecPool
from .server_requests import ServerRequests
from .server_watch import ServerWatch, pause

_STARTS_UNTIL_PAUSE = 3
START_PAUSE_SECONDS = 60.0
# Places become free one by one, at no time that could be foreseen.
_RETRY_SECONDS = 5.0


class Keeper:
    """Keeps a pool's servers.

    Parameters
    ----------
    fleet : Fleet
        Starts and stops servers.
    requests : ServerRequests
        Sends requests to the servers.
    settings : ExecPool
        The pool's settings.
    on_end : callable
        Called once for each server that is lost or has ended, unless its start failed. It returns a coroutine.

    Attributes
    ----------
    servers : dict
        The servers by name. Lost ones are among them until they are stopped.
    is_ready : asyncio.Event
        Set once the servers that ran before the pool are known.
    failed_starts, lost_servers : int
        How many starts failed, and how many servers were lost or have ended without being stopped by the pool.
    """

    def __init__(
        self,
        fleet: Fleet,
        requests: ServerRequests,
        settings: ExecPool,
        *,
        on_end: Callable[[Server], Coroutine[Any, Any, None]],
    ) -> None:
        self._fleet = fleet
        self._requests = requests
        self._settings = settings
        self._log = settings.log
        self._on_end = on_end
        self.servers: dict[str, Server] = {}
        self.is_ready = asyncio.Event()
        self.failed_starts = self.lost_servers = 0
        self._waiting = PlaceQueue()
        self._hub_problem = "it has not been asked yet"
        self._failures_in_row = 0
        self._last_failure = ""
        self._no_starts_until = 0.0
        self._listed: set[str] = set()
        self._named_at_seconds = 0
        self._starting: set[str] = set()
        self._stopping: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_hub_asked_now = asyncio.Event()

    # --- places -------------------------------------------------------------------------------------------------------

    def reserve_now(self, excluded: Collection[str] = (), account: str = "") -> Reservation:
        """Reserve a place for a session of an account on a server that is not excluded.

        Raises
        ------
        PoolFull
            If no server has a free place.
        NoServerStarted
            If another server could have one, and cannot be started.
        """
        reservation = self._find_place(excluded, account)
        if reservation is None:
            self._start_and_stop(waiting=1)
            raise self._refusal()
        return reservation

    async def reserve_within(self, seconds: float, excluded: Collection[str] = (), account: str = "") -> Reservation:
        """Reserve a place, and wait for it if need be; raise the errors of `reserve_now` if there was none in time."""
        reservation = self._find_place(excluded, account)
        if reservation is None:
            self._start_and_stop(waiting=1)
            reservation = await self._waiting.wait(seconds, excluded, account)
        if reservation is None:
            raise self._refusal()
        return reservation

    def note_failure(self, name: str) -> None:
        """Place no sessions on a server for some time: one could not be created there."""
        if (server := self.servers.get(name)) is not None:
            server.failed_at = time.monotonic()

    def refresh(self, name: str) -> None:
        """Have a server asked for its load at once, such as after a session of it has ended."""
        if (server := self.servers.get(name)) is not None:
            server.is_asked_now.set()

    def has_place(self, server: Server | None) -> bool:
        """Return whether a server takes another session now."""
        per_server = self._settings.sessions_per_server
        return server is not None and server.snapshot.count_free(per_server, time.monotonic()) > 0

    def is_count_uncertain(self) -> bool:
        """Return whether the servers' last answers may have counted sessions that are still counted as coming."""
        return any(server.coming for server in self.servers.values())

    def count_free_places(self) -> int:
        """Return how many more sessions the servers can have that run now."""
        per_server, now = self._settings.sessions_per_server, time.monotonic()
        return sum(server.snapshot.count_free(per_server, now) for server in self.servers.values())

    @property
    def trouble(self) -> str | None:
        """The problems of the pool for its administrator; None if there are none."""
        problems = [f"the JupyterHub: {self._hub_problem}"] if self._hub_problem else []
        if self._failures_in_row >= _STARTS_UNTIL_PAUSE:
            problems.append(f"the last {self._failures_in_row} starts of servers failed: {self._last_failure}")
        problems += [f"server {server.name}: {server.problem}" for server in self.servers.values() if server.problem]
        return "; ".join(problems) or None

    @property
    def _running(self) -> list[Server]:
        return [server for server in self.servers.values() if server.state is not ServerState.LOST]

    def _find_place(self, excluded: Collection[str], account: str) -> Reservation | None:
        candidates = [*self.servers.values()]
        if self._settings.tenancy == "own":
            name = personal_server_name(account)
            candidates = [self.servers[name]] if name in self.servers else []
            has_room = len(self._running) < self._settings.max_servers and name not in self._stopping
            if not candidates and has_room and self._can_start():
                self._start(name)
        snapshots = [server.snapshot for server in candidates]
        chosen = choose(snapshots, self._settings.sessions_per_server, time.monotonic(), excluded)
        return None if chosen is None else Reservation(self.servers[chosen], self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._waiting.serve(self._find_place)

    def _refusal(self) -> ExecError:
        pause = self._no_starts_until - time.monotonic()
        reason = self._hub_problem or (self._last_failure if pause > 0 else "")
        if reason and len(self._running) < self._settings.max_servers:
            return NoServerStarted(
                f"the pool needs another server, and the JupyterHub starts none: {reason}",
                retry_after_seconds=max(pause, _RETRY_SECONDS),
            )
        number = self._settings.max_servers * self._settings.sessions_per_server
        return PoolFull(
            f"no server of the pool has a free place now; the pool has at most {number} sessions",
            retry_after_seconds=_RETRY_SECONDS,
            limit={"policy": "pool", "name": "sessions", "value": number},
        )

    # --- the Hub's side: which servers there are, and how many are needed ---------------------------------------------

    async def run(self) -> None:
        """Keep the pool until the task is cancelled."""
        try:
            while True:
                await self._ask_hub()
                await pause(self._is_hub_asked_now, server_watch.PROBE_SECONDS / 2, server_watch.PROBE_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask_hub(self) -> None:
        expected = self.servers.keys() - self._starting
        try:
            listed = {entry.name: entry for entry in await self._fleet.list() if is_pool_server(entry.name)}
        except ExecError as error:  # until the next list no server starts or stops
            self._hub_problem = error.message
            return
        self._hub_problem = ""
        self._listed = set(listed)
        for entry in listed.values():
            self._adopt(entry)
        for server in [*self.servers.values()]:
            # Not only by what the Hub says: a server that answers runs.
            is_silent = server.missed_probes > 0 if server.address else server.name in expected
            if is_silent and (server.name not in listed or listed[server.name].is_stopped):
                self._end(server, ServerState.ENDED)
        for name, entry in listed.items():
            if name not in self.servers and entry.is_stopped and not is_personal_server(name):
                self._remove(name)
        if not self.is_ready.is_set():
            await asyncio.gather(*(self._watch(server).probe() for server in self._running if server.address))
            self.is_ready.set()
        self._start_and_stop()

    def _adopt(self, entry: FleetServer) -> None:
        """Note what the Hub says of a server, which may have been started before the pool."""
        server = self.servers.get(entry.name)
        if server is not None and server.address and entry.is_ready and entry.started != server.started:
            self._end(server, ServerState.ENDED)  # an account's own server, which was started again
            server = None
        if server is None and not entry.is_stopped and entry.pending != "stop" and entry.name not in self._stopping:
            server = self.servers[entry.name] = Server(entry.name, is_adopted=not self.is_ready.is_set())
        if server is not None and not server.address and entry.is_ready and entry.address:
            server.address, server.started, server.answered_at = entry.address, entry.started, time.monotonic()
            self._spawn(self._watch(server).run())

    def _watch(self, server: Server) -> ServerWatch:
        return ServerWatch(server, self._requests, self._settings.lost_after_seconds, self)

    def _can_start(self) -> bool:
        return not self._hub_problem and time.monotonic() >= self._no_starts_until

    def _start_and_stop(self, waiting: int = 0) -> None:
        """Start the servers that are needed, and drain and stop those that are not; nothing while the Hub is away."""
        if self._hub_problem:
            return
        running = self._running
        snapshots = [server.snapshot for server in running if server.state is not ServerState.STARTING]
        # Servers of single accounts are started for them alone, by name.
        waiting = waiting + len(self._waiting) if self._settings.tenancy == "isolated" else 0
        bounds = self._settings.server_bounds
        plan = plan_servers(snapshots, len(running) - len(snapshots), waiting, bounds, time.monotonic())
        for _ in range(plan.start if self._can_start() else 0):
            # A name is never used twice. One that an earlier pool has used is left out, until the next round.
            self._named_at_seconds = max(int(time.time()), self._named_at_seconds + 1)
            if (name := make_server_name(self._named_at_seconds)) not in self._listed:
                self._start(name)
        for name in plan.stop:
            self.servers[name].change_state(ServerState.DRAINING)
            self._spawn(self._drain(name))
        for server in self.servers.values():
            if server.is_drained or server.state is ServerState.LOST:
                self._remove(server.name)

    def _start(self, name: str) -> None:
        server = self.servers[name] = Server(name, is_new=True)
        self._starting.add(name)
        self._spawn(self._run_start(server))

    async def _run_start(self, server: Server) -> None:
        try:
            await self._fleet.start(server.name)
        except NoServerStarted as error:
            self._note_failed_start(server, error.message)
            self._end(server, ServerState.ENDED)
        except Unavailable as error:  # the Hub's next list says whether it carried the start out
            self._hub_problem = error.message
        finally:
            self._starting.discard(server.name)
        self._is_hub_asked_now.set()

    def _note_failed_start(self, server: Server, reason: str) -> None:
        self._log.warning("the server %s did not start: %s", server.name, reason)
        self.failed_starts += 1
        self._failures_in_row += 1
        self._last_failure = reason
        if self._failures_in_row >= _STARTS_UNTIL_PAUSE:
            self._no_starts_until = time.monotonic() + START_PAUSE_SECONDS

    async def drain(self, name: str) -> None:
        """Place no more sessions on a server, and stop it when it has none.

        Raises
        ------
        NotFound
            If the pool has no such server.
        ExecError
            If the server refuses or does not answer.
        """
        if name not in self.servers:
            raise NotFound(f"the pool has no server {name!r}")
        await self._requests.drain(self.servers[name])
        self.refresh(name)

    async def _drain(self, name: str) -> None:
        try:
            await self.drain(name)
        except ExecError as error:  # the next probe finds it as it is
            self._log.warning("the server %s could not be drained: %s", name, error.message)

    def _remove(self, name: str) -> None:
        if name not in self._stopping:
            self._stopping.add(name)
            self._spawn(self._run_stop(name))

    async def _run_stop(self, name: str) -> None:
        try:
            await self._fleet.stop(name, removes=not is_personal_server(name))
            if name in self.servers:
                self._end(self.servers[name], ServerState.ENDED)
        except ExecError as error:  # the next list of the Hub leads here again
            self._log.warning("the server %s could not be stopped: %s", name, error.message)
        finally:
            self._stopping.discard(name)

    # --- what the watches of the servers tell -------------------------------------------------------------------------

    def on_answer(self, server: Server) -> None:
        """Give places on a server to requests that wait."""
        if server.is_new:
            server.is_new, self._failures_in_row = False, 0
        self._serve_waiting()

    def on_lost(self, server: Server) -> None:
        """Stop a server that has been silent for too long."""
        if server.is_new:
            self._note_failed_start(server, server.problem)
        self._end(server, ServerState.LOST)

    def _end(self, server: Server, state: ServerState) -> None:
        if not (server.is_new or server.state in (ServerState.LOST, ServerState.ENDED)):
            server.is_loss = not (server.is_drained or server.name in self._stopping)
            self.lost_servers += server.is_loss
            self._spawn(self._on_end(server))
        server.change_state(state)
        if state is ServerState.ENDED and self.servers.get(server.name) is server:
            del self.servers[server.name]
        self._start_and_stop()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end_of_task)

    def _note_end_of_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("a task of the pool ended with a defect", exc_info=task.exception())
