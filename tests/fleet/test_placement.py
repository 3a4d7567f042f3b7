"""Placement and the number of servers, as pure decisions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.fleet.placement import (
    FAILED_SECONDS,
    ServerBounds,
    ServerSnapshot,
    choose,
    is_personal_server,
    is_pool_server,
    make_server_name,
    personal_server_name,
    plan_servers,
)

NOW = 1000.0
PER_SERVER = 10
BOUNDS = ServerBounds(
    min_servers=1, max_servers=4, sessions_per_server=PER_SERVER, spare_sessions=2, idle_server_seconds=60.0
)


@st.composite
def snapshot_lists(draw: st.DrawFn) -> list[ServerSnapshot]:
    snapshots = []
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True)):
        sessions = draw(st.integers(0, PER_SERVER + 2))
        snapshot = ServerSnapshot(
            name,
            sessions,
            coming=draw(st.integers(0, PER_SERVER + 2)),
            is_open=draw(st.booleans()),
            free=draw(st.none() | st.integers(0, PER_SERVER)),
            failed_at_seconds=draw(st.none() | st.floats(NOW - 2 * FAILED_SECONDS, NOW)),
            empty_since_seconds=None if sessions else draw(st.floats(NOW - 200.0, NOW)),
        )
        snapshots.append(snapshot)
    return snapshots


@st.composite
def server_bounds(draw: st.DrawFn) -> ServerBounds:
    most = draw(st.integers(1, 8))
    return replace(
        BOUNDS, min_servers=draw(st.integers(0, most)), max_servers=most, spare_sessions=draw(st.integers(0, 30))
    )


@given(snapshot_lists(), st.sets(st.sampled_from("abcdef")))
def test_choose_never_takes_a_server_that_cannot_have_it(places: list[ServerSnapshot], excluded: set[str]) -> None:
    name = choose(places, PER_SERVER, NOW, excluded)
    fitting = {
        place.name: place.sessions + place.coming
        for place in places
        if place.is_open
        and place.name not in excluded
        and place.sessions + place.coming < PER_SERVER
        and (place.free is None or place.coming < place.free)
        and (place.failed_at_seconds is None or place.failed_at_seconds <= NOW - FAILED_SECONDS)
    }
    if not fitting:
        assert name is None
    else:
        assert name == min(fitting, key=lambda each: (fitting[each], each))


@given(st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_choose_in_a_burst_evens_the_servers_out(sessions: list[int]) -> None:
    places = {name: ServerSnapshot(name, count) for name, count in zip("abcd", sessions, strict=True)}
    for _ in range(20):
        name = choose(places.values(), 100, NOW)
        assert name is not None
        places[name] = replace(places[name], coming=places[name].coming + 1)
    totals = [place.sessions + place.coming for place in places.values()]
    assert max(totals) - min(totals) <= 1
    assert sum(totals) == sum(sessions) + 20


@given(snapshot_lists(), st.integers(0, 4), st.integers(0, 50), server_bounds())
def test_plan_keeps_its_bounds(places: list[ServerSnapshot], starting: int, waiting: int, bounds: ServerBounds) -> None:
    plan = plan_servers(places, starting, waiting, bounds, NOW)
    by_name = {place.name: place for place in places}
    assert not (plan.start and plan.stop)
    assert not plan.start or len(places) + starting + plan.start <= bounds.max_servers
    for name in plan.stop:
        place = by_name[name]
        assert place.is_open
        assert place.sessions == place.coming == 0
        assert place.empty_since_seconds is not None
        assert place.empty_since_seconds <= NOW - bounds.idle_server_seconds
    usable = sum(place.is_open for place in places) + starting
    assert not plan.stop or usable - len(plan.stop) >= bounds.min_servers
    left = [place for place in places if place.name not in plan.stop]
    room = sum(place.count_free(PER_SERVER, NOW) for place in left) + (starting + plan.start) * PER_SERVER
    is_enough = room >= bounds.spare_sessions + waiting and usable + plan.start >= bounds.min_servers
    assert is_enough or len(places) + starting + plan.start >= bounds.max_servers
    # No more than needed, and the next plan changes nothing.
    if plan.start:
        assert plan.start == 1 or not (
            room - PER_SERVER >= bounds.spare_sessions + waiting and usable + plan.start - 1 >= bounds.min_servers
        )
    after = plan_servers(left, starting + plan.start, waiting, bounds, NOW)
    assert (after.start, after.stop) == (0, ())


def test_plan_for_an_empty_pool_starts_the_least_number_of_servers() -> None:
    assert plan_servers([], 0, 0, replace(BOUNDS, min_servers=3), NOW).start == 3


def test_plan_without_room_starts_servers_for_those_that_wait() -> None:
    full = ServerSnapshot("a", PER_SERVER)
    assert plan_servers([full], 0, 0, BOUNDS, NOW).start == 1
    assert plan_servers([full], 0, 12, BOUNDS, NOW).start == 2
    assert plan_servers([full], 1, 0, BOUNDS, NOW).start == 0


def test_plan_with_a_draining_server_replaces_it() -> None:
    draining = ServerSnapshot("a", 3, is_open=False)
    assert plan_servers([draining], 0, 0, BOUNDS, NOW).start == 1
    assert plan_servers([draining], 0, 0, replace(BOUNDS, max_servers=1), NOW).start == 0


def test_plan_stops_the_server_that_has_been_idle_longest() -> None:
    places = [ServerSnapshot("a", empty_since_seconds=NOW - 70), ServerSnapshot("b", empty_since_seconds=NOW - 80)]
    assert plan_servers(places, 0, 0, BOUNDS, NOW).stop == ("b",)
    assert plan_servers(places, 0, 9, BOUNDS, NOW).stop == ()


@given(st.integers(1_790_000_000, 4_000_000_000))
def test_server_names_differ_by_second_and_fit_into_ids(second: int) -> None:
    name = make_server_name(second)
    assert name != make_server_name(second + 1)
    assert int(name[1:], 36) + 1_767_225_600 == second
    assert is_pool_server(name)
    assert not is_personal_server(name)


def test_own_server_of_a_principal_has_always_the_same_name() -> None:
    name = personal_server_name("ada@example.org")
    assert name == personal_server_name("ada@example.org") != personal_server_name("bob@example.org")
    assert is_pool_server(name)
    assert is_personal_server(name)


def test_servers_of_people_are_not_the_pools() -> None:
    assert not any(is_pool_server(name) for name in ("", "w", "work-1", "Wabc", "analysis", "w" * 17))
