"""The keeper of a pool: its servers' states after failures, their number, and places for sessions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from jupyter_exec_ext.errors import NoServerStarted, NotFound, PoolFull, Unavailable
from jupyter_exec_ext.fleet.placement import personal_server_name
from jupyter_exec_ext.fleet.pool_server import Reservation, ServerState
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.fleet.sessions import SessionRequests
from tests.support.fleets import TOKEN, RunningKeeper, SimulatedFleet, SimulatedServer, running_keeper, short_times
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with short_times(monkeypatch):
        yield


def states(keeper: RunningKeeper) -> dict[str, str]:
    return {name: server.state.value for name, server in keeper.servers.items()}


async def until_ready(keeper: RunningKeeper, number: int) -> list[str]:
    await until(lambda: list(states(keeper).values()) == ["ready"] * number)
    return list(keeper.servers)


async def create(keeper: RunningKeeper, reservation: Reservation) -> str:
    """Create a session as the router does."""
    url = f"{reservation.server.address}exec/v1/sessions"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"token {TOKEN}"}) as http,
        http.post(url) as answer,
    ):
        reservation.done(is_kept=answer.status == 201)
        return str((await answer.json())["id"])


# --- what happens, and what follows from it (the table of failures) ----------------------------------------------


async def test_server_process_that_dies_ends_and_new_sessions_go_elsewhere() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=2) as keeper:
        first, second = await until_ready(keeper, 2)
        lost = keeper.servers[first]
        await fleet[first].die()
        await until(lambda: keeper.ended == [lost])
        assert lost.state is ServerState.ENDED
        assert lost.away.is_set()
        assert keeper.reserve_now().server.name != first
        await until(lambda: first not in fleet.servers)  # the Hub keeps no record of it
        assert len(await until_ready(keeper, 2)) == 2  # there is another one in its place
        assert (first in keeper.servers, second in keeper.servers) == (False, True)
        assert (keeper.lost_servers, keeper.failed_starts) == (1, 0)


async def test_silent_server_is_unreachable_after_three_probes_and_comes_back_whole() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, lost_after_seconds=30, max_servers=1) as keeper:
        (name,) = await until_ready(keeper, 1)
        server = keeper.servers[name]
        fleet[name].sessions = ["ses_1"]
        fleet[name].fall_silent()
        away = server.away
        await asyncio.wait_for(away.wait(), 10)
        assert server.missed_probes == 3
        assert states(keeper) == {name: "unreachable"}
        with pytest.raises(PoolFull):
            keeper.reserve_now()
        fleet[name].come_back()
        await until_ready(keeper, 1)
        assert server.away is not away
        assert not server.away.is_set()
        assert (keeper.ended, fleet[name].deleted) == ([], [])
        assert keeper.reserve_now().server is server


async def test_silent_server_is_lost_in_the_end_and_stopped() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, lost_after_seconds=0.3) as keeper:
        (name,) = await until_ready(keeper, 1)
        server = keeper.servers[name]
        fleet[name].fall_silent()
        await until(lambda: keeper.ended)
        assert keeper.ended == [server]
        await until(lambda: fleet.stopped == [name])
        assert await until_ready(keeper, 1) != [name]
        assert keeper.ended == [server]
        assert keeper.lost_servers == 1


async def test_lost_server_that_comes_back_has_its_sessions_deleted_and_gets_no_new_ones() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, lost_after_seconds=0.3, max_servers=1) as keeper:
        (name,) = await until_ready(keeper, 1)
        server = fleet[name]
        server.sessions = ["ses_1", "ses_2"]
        fleet.is_away = True  # so that the server cannot be stopped
        server.fall_silent()
        await until(lambda: states(keeper) == {name: "lost"})
        server.come_back()
        await until(lambda: server.deleted == ["ses_1", "ses_2"])
        asked = server.requests
        await until(lambda: server.requests > asked + 2)
        assert states(keeper) == {name: "lost"}
        with pytest.raises(NoServerStarted):
            keeper.reserve_now()
        fleet.is_away = False
        await until(lambda: fleet.stopped == [name])
        await until(lambda: list(states(keeper).values()) == ["ready"])
        assert name not in keeper.servers


async def test_while_the_hub_is_down_nothing_starts_or_stops_and_sessions_are_placed() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, sessions_per_server=2, spare_sessions=4, idle_server_seconds=0) as keeper:
        names = await until_ready(keeper, 2)
        fleet.is_away = True
        await until(lambda: keeper.trouble)
        assert "the JupyterHub" in str(keeper.trouble)
        keeper._settings.spare_sessions = 0  # so that both are idle
        asked = fleet.lists
        await until(lambda: fleet.lists > asked + 3)
        for _ in range(4):
            # Where a slow machine delays a probe's answer, a server has no place for a moment.
            await create(keeper, await keeper.reserve_within(10))
        with pytest.raises(NoServerStarted, match=r"the JupyterHub starts none: .*it is away") as refused:
            keeper.reserve_now()
        assert refused.value.retry_after_seconds
        await until(lambda: states(keeper) == dict.fromkeys(names, "ready"))
        assert (fleet.started, fleet.stopped) == (names, [])
        fleet.is_away = False
        reservation = await keeper.reserve_within(10)
        assert reservation.server.name not in names
        assert keeper.trouble is None


async def test_server_that_answers_runs_whatever_the_hub_says() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet) as keeper:
        (name,) = await until_ready(keeper, 1)
        fleet.believed_dead.add(name)
        asked = fleet.lists
        await until(lambda: fleet.lists > asked + 3)
        assert (states(keeper), fleet.stopped) == ({name: "ready"}, [])


async def test_server_that_dies_while_the_hub_is_down_is_lost() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, lost_after_seconds=0.3) as keeper:
        (name,) = await until_ready(keeper, 1)
        fleet.is_away = True
        await fleet[name].die()
        await until(lambda: [server.state.value for server in keeper.ended] == ["lost"])
        fleet.is_away = False
        await until(lambda: name not in fleet.servers)
        assert len(keeper.ended) == 1


async def test_pool_that_is_restarted_finds_its_servers_before_it_is_ready() -> None:
    fleet = SimulatedFleet()
    for name, sessions in (("w1", ["ses_1"]), ("w2", [])):
        fleet.servers[name] = SimulatedServer(name, "before")
        await fleet[name].start()
        fleet[name].sessions = list(sessions)
    fleet.servers["wdead"] = SimulatedServer("wdead", "before")
    fleet.servers["work-of-a-person"] = SimulatedServer("work-of-a-person", "before")
    async with running_keeper(fleet) as keeper:
        await asyncio.wait_for(keeper.is_ready.wait(), 10)
        assert states(keeper) == {"w1": "ready", "w2": "ready"}
        assert keeper.reserve_now().server.name == "w2"
        assert fleet[("w1")].sessions == ["ses_1"]
        await until(lambda: fleet.stopped)
        assert (fleet.started, fleet.stopped) == ([], ["wdead"])


async def test_drained_server_gets_no_sessions_and_loses_none() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=1) as keeper:
        (name,) = await until_ready(keeper, 1)
        fleet[name].sessions, fleet[name].running = ["ses_1"], 1
        await keeper.drain(name)
        await until(lambda: sorted(states(keeper).values()) == ["draining", "ready"])  # another one takes its place
        assert keeper.reserve_now().server.name != name
        fleet[name].sessions = []
        asked = fleet[name].requests
        await until(lambda: fleet[name].requests > asked + 4)
        assert name in keeper.servers  # something runs there still
        fleet[name].running = 0
        await until(lambda: fleet.stopped == [name])
        await until(lambda: [server.name for server in keeper.ended] == [name])
        assert name not in keeper.servers
        assert keeper.lost_servers == 0
        with pytest.raises(NotFound):
            await keeper.drain(name)


async def test_full_pool_names_its_limit() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, max_servers=2, sessions_per_server=3, min_servers=2) as keeper:
        await until_ready(keeper, 2)
        assert keeper.count_free_places() == 6
        kept = [keeper.reserve_now() for _ in range(6)]
        for _ in range(100):
            with pytest.raises(PoolFull) as refused:
                keeper.reserve_now()
            assert refused.value.limit == {"policy": "pool", "name": "sessions", "value": 6}
            assert refused.value.retry_after_seconds == 5.0
        kept[0].done(is_kept=False)
        assert keeper.reserve_now().server is kept[0].server
        assert len(fleet.started) == 2


async def test_server_with_a_lower_limit_of_its_own_gets_no_more() -> None:
    fleet = SimulatedFleet(max_sessions=2)
    async with running_keeper(fleet, max_servers=1, sessions_per_server=100) as keeper:
        await until_ready(keeper, 1)
        for _ in range(2):
            await create(keeper, keeper.reserve_now())
        with pytest.raises(PoolFull):
            keeper.reserve_now()


async def test_start_that_fails_is_followed_by_the_next_and_three_by_a_pause() -> None:
    fleet = SimulatedFleet()
    fleet.failure = "no room on the cluster"
    async with running_keeper(fleet) as keeper:
        await until(lambda: keeper.trouble and "3 starts" in keeper.trouble)
        assert "no room on the cluster" in str(keeper.trouble)
        assert keeper.failed_starts == len(fleet.started) == 3
        with pytest.raises(NoServerStarted, match="no room on the cluster") as refused:
            keeper.reserve_now()
        assert refused.value.retry_after_seconds == 5.0
        assert len(set(fleet.started)) == 3  # no name is used twice
        await until(lambda: len(fleet.started) == 4)  # after the pause
        fleet.failure = ""
        await until_ready(keeper, 1)
        assert keeper.trouble is None
        assert keeper.ended == []


async def test_server_that_starts_without_this_extension_is_a_failed_start() -> None:
    fleet = SimulatedFleet()

    async def start(name: str) -> None:
        await SimulatedFleet.start(fleet, name)
        fleet[name].is_known_as = "another"

    fleet.start = start  # type: ignore[method-assign]
    async with running_keeper(fleet, lost_after_seconds=0.3, max_servers=1) as keeper:
        await until(lambda: keeper.trouble and "'another'" in keeper.trouble)
        await until(lambda: keeper.failed_starts)
        await until(lambda: fleet.stopped)
        assert keeper.ended == []


async def test_idle_servers_are_drained_and_stopped_down_to_the_least_number() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=2, spare_sessions=300, idle_server_seconds=0.1) as keeper:
        await until_ready(keeper, 3)
        keeper._settings.spare_sessions = 0
        await until(lambda: len(fleet.stopped) == 1)
        (stopped,) = fleet.stopped
        await until(lambda: stopped not in keeper.servers)
        asked = sum(server.requests for server in fleet.servers.values())
        await until(lambda: sum(server.requests for server in fleet.servers.values()) > asked + 20)
        assert len(fleet.stopped) == 1
        assert keeper.lost_servers == 0


async def test_server_that_is_to_be_drained_gets_no_sessions_meanwhile() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, spare_sessions=150, idle_server_seconds=0) as keeper:
        names = await until_ready(keeper, 2)
        for name in names:
            fleet[name].can_drain.clear()
        keeper._settings.spare_sessions = 0
        await until(lambda: sorted(states(keeper).values()) == ["draining", "ready"])
        (draining,) = (name for name, state in states(keeper).items() if state == "draining")
        assert keeper.reserve_now().server.name != draining
        fleet[draining].can_drain.set()
        await until(lambda: fleet.stopped == [draining])


async def test_start_that_takes_long_is_waited_for() -> None:
    fleet = SimulatedFleet()
    fleet.can_start.clear()
    async with running_keeper(fleet) as keeper:
        await until(lambda: fleet.started)
        asked = fleet.lists
        await until(lambda: fleet.lists > asked + 3)
        assert list(states(keeper).values()) == ["starting"]
        fleet.can_start.set()
        assert await until_ready(keeper, 1) == fleet.started


async def test_server_with_a_session_is_not_idle() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(
        fleet, min_servers=0, spare_sessions=0, idle_server_seconds=0.05, max_servers=1
    ) as keeper:
        reservation = await keeper.reserve_within(10)
        asked = fleet[reservation.server.name].requests
        await until(lambda: fleet[reservation.server.name].requests > asked + 10)
        await create(keeper, reservation)
        await until(lambda: fleet[reservation.server.name].requests > asked + 20)
        assert fleet.stopped == []
        fleet[reservation.server.name].sessions.clear()
        await until(lambda: fleet.stopped == [reservation.server.name])
        await until(lambda: states(keeper) == {})


# --- places ---------------------------------------------------------------------------------------------------------


async def test_burst_of_100_sessions_over_4_servers_leaves_none_with_more_than_27() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=4, max_servers=4) as keeper:
        await until_ready(keeper, 4)

        async def place() -> str:
            reservation = await keeper.reserve_within(0)
            await create(keeper, reservation)
            return reservation.server.name

        placed = Counter(await asyncio.gather(*(place() for _ in range(100))))
        assert placed == {name: len(server.sessions) for name, server in fleet.servers.items()}
        assert max(placed.values()) <= 27
        assert sum(placed.values()) == 100


async def test_server_that_has_failed_gets_no_sessions() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=2, max_servers=2) as keeper:
        first, second = sorted(await until_ready(keeper, 2))
        keeper.note_failure(first)
        assert [keeper.reserve_now().server.name for _ in range(3)] == [second] * 3
        with pytest.raises(PoolFull):
            keeper.reserve_now(excluded={second})


async def test_sessions_are_counted_once_after_the_server_has_counted_them() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, max_servers=1, sessions_per_server=10) as keeper:
        (name,) = await until_ready(keeper, 1)
        server = keeper.servers[name]
        open_one = keeper.reserve_now()
        await create(keeper, keeper.reserve_now())
        await until(lambda: server.load is not None and server.load.sessions == 1 and len(server.coming) == 1)
        assert keeper.count_free_places() == 8
        open_one.done(is_kept=False)
        open_one.done(is_kept=True)  # only the first one counts
        assert keeper.count_free_places() == 9
        fleet[name].sessions.clear()
        keeper.refresh(name)
        await until(lambda: keeper.count_free_places() == 10)


async def test_request_that_waits_gets_the_place_that_becomes_free() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, max_servers=1, sessions_per_server=1) as keeper:
        (name,) = await until_ready(keeper, 1)
        await create(keeper, keeper.reserve_now())
        waiting = asyncio.create_task(keeper.reserve_within(10))
        with pytest.raises(PoolFull):
            await keeper.reserve_within(0.05)
        fleet[name].sessions.clear()
        keeper.refresh(name)
        assert (await waiting).server.name == name


async def test_request_that_is_cancelled_gives_its_place_to_the_next() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, max_servers=1, sessions_per_server=1) as keeper:
        await until_ready(keeper, 1)
        first = keeper.reserve_now()
        waiting = [asyncio.create_task(keeper.reserve_within(10)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting[0].cancel()
        first.done(is_kept=False)  # the second one has the place now, before its task runs
        waiting[1].cancel()
        assert (await waiting[2]).server.state is ServerState.READY
        for task in waiting[:2]:
            with suppress(asyncio.CancelledError):
                await task
            assert task.cancelled()


async def test_accounts_take_turns_when_the_pool_is_full() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, max_servers=1, sessions_per_server=4) as keeper:
        await until_ready(keeper, 1)
        kept = [keeper.reserve_now() for _ in range(4)]
        order: list[str] = []

        async def wait(account: str) -> None:
            await keeper.reserve_within(10, account=account)
            order.append(account)

        tasks = [asyncio.create_task(wait(account)) for account in ("ada",) * 5 + ("bob",) * 2]
        await asyncio.sleep(0)
        for reservation in kept:
            reservation.done(is_kept=False)
        await until(lambda: len(order) == 4)
        assert sorted(order) == ["ada", "ada", "bob", "bob"]
        for task in tasks:
            task.cancel()


async def test_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.fleet.place_queue._MAX_WAITING_PER_ACCOUNT", 2)
    fleet = SimulatedFleet()
    fleet.can_start.clear()
    async with running_keeper(fleet) as keeper:
        await until(lambda: fleet.started)
        tasks = [asyncio.create_task(keeper.reserve_within(10, account="ada")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(PoolFull):
            await keeper.reserve_within(10, account="ada")
        fleet.can_start.set()
        assert (await keeper.reserve_within(10, account="bob")).server.name == fleet.started[0]
        await asyncio.gather(*tasks)


async def test_place_in_an_empty_pool_starts_a_server() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=0, spare_sessions=0) as keeper:
        await asyncio.wait_for(keeper.is_ready.wait(), 10)
        assert fleet.started == []
        with pytest.raises(PoolFull):
            keeper.reserve_now()
        await until_ready(keeper, 1)
        assert keeper.reserve_now().server.name == fleet.started[0]


async def test_own_servers_are_started_for_their_principals_alone() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, tenancy="own", idle_server_seconds=0.2, max_servers=2) as keeper:
        await asyncio.wait_for(keeper.is_ready.wait(), 10)
        ada, bob = [await keeper.reserve_within(10, account=name) for name in ("ada", "bob")]
        assert [ada.server.name, bob.server.name] == [personal_server_name("ada"), personal_server_name("bob")]
        assert fleet.started == [ada.server.name, bob.server.name]
        with pytest.raises(PoolFull):
            keeper.reserve_now(account="eve")
        ada.done(is_kept=False)
        await until(lambda: ada.server.name not in keeper.servers)
        assert fleet.stopped == [ada.server.name]
        assert ada.server.name in fleet.servers  # the Hub keeps it, since it is started again
        again = await keeper.reserve_within(10, account="ada")
        assert again.server is not ada.server
        assert again.server.name == ada.server.name


@pytest.mark.parametrize("tenancy", ["own", "isolated"])
async def test_pool_without_a_server_is_ready_if_each_account_has_its_own(tenancy: str) -> None:
    unused: Any = None
    async with running_keeper(SimulatedFleet(), tenancy=tenancy, min_servers=0, spare_sessions=0) as keeper:
        settings = ExecPool(tenancy=tenancy)
        sessions = SessionRequests(settings, keeper, unused, unused, unused, unused)
        await asyncio.wait_for(keeper.is_ready.wait(), 10)
        sessions.is_open = True
        assert sessions.is_ready is (tenancy == "own")


async def test_own_server_that_was_started_again_by_others_is_another_one() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, tenancy="own") as keeper:
        await asyncio.wait_for(keeper.is_ready.wait(), 10)
        before = (await keeper.reserve_within(10, account="ada")).server
        await fleet[before.name].die()
        fleet.servers[before.name] = SimulatedServer(before.name, "again")
        await fleet[before.name].start()
        await until(lambda: keeper.ended == [before])
        await until(lambda: keeper.servers.get(before.name, before).state is ServerState.READY)
        assert keeper.servers[before.name] is not before


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_start_that_the_hub_does_not_answer_is_found_later_or_repeated(is_carried_out: bool) -> None:
    fleet = SimulatedFleet()
    is_first = True

    async def start(name: str) -> None:
        nonlocal is_first
        was_first, is_first = is_first, False
        if is_carried_out or not was_first:
            await SimulatedFleet.start(fleet, name)
        if was_first:
            raise Unavailable("the answer was lost")

    fleet.start = start  # type: ignore[method-assign]
    async with running_keeper(fleet, max_servers=1) as keeper:
        await until_ready(keeper, 1)
        assert (len(fleet.started), keeper.failed_starts, keeper.ended) == (1, 0, [])


async def test_defect_in_a_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet) as keeper:
        (name,) = await until_ready(keeper, 1)

        async def fail(server: object) -> None:
            raise RuntimeError("a defect of on_end")

        keeper._on_end = fail
        await fleet[name].die()
        await until(lambda: "a defect of on_end" in caplog.text)
