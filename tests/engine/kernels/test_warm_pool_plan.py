"""What a pool should hold, from what was asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from jupyter_exec_ext.engine.kernels.warm_pool_plan import (
    ASSUMED_BYTES,
    MISS_SECONDS,
    Demand,
    KernelKind,
    PoolBounds,
    allot,
    plan,
)

MiB = 1024**2
BOUNDS = PoolBounds(size=1, max_kernels=4, memory_bytes=1000 * MiB, idle_seconds=600)


def kind(version: str = "1", isolate: str | None = None, **env: str) -> KernelKind:
    return KernelKind("python3", "python", version, isolate, frozenset(env.items()))


def test_nothing_is_started_before_anybody_has_asked() -> None:
    assert plan(0, BOUNDS, {}, []) == plan(0, BOUNDS, {}, [])
    assert plan(0, BOUNDS, {}, []).start is None


def test_a_kind_is_kept_from_when_it_was_asked_for_until_it_is_forgotten() -> None:
    demands = {"a": Demand(100)}
    assert plan(100, BOUNDS, demands, []).start == "a"
    assert plan(100, BOUNDS, demands, ["a"]).start is None
    assert plan(100, BOUNDS, demands, ["a"]).look_again_at == 700
    assert plan(699, BOUNDS, demands, ["a"]).end == ()
    assert plan(700, BOUNDS, demands, ["a"]).end == ("a",)


def test_what_is_always_kept_is_not_forgotten() -> None:
    demands = {"a": Demand(0, always=True)}
    assert plan(1e9, BOUNDS, demands, []).start == "a"
    assert plan(1e9, BOUNDS, demands, ["a"]).look_again_at is None


def test_who_finds_none_makes_for_one_more_for_a_minute() -> None:
    demand = Demand(0)
    demand.ask(10, found=False, most=4)
    demand.ask(11, found=True, most=4)
    assert allot(11, BOUNDS, {"a": demand}) == {"a": 2}
    assert plan(11, BOUNDS, {"a": demand}, ["a", "a"]).look_again_at == 10 + MISS_SECONDS
    assert plan(10 + MISS_SECONDS, BOUNDS, {"a": demand}, ["a", "a"]).end == ("a",)


def test_a_burst_makes_for_no_more_than_the_bound() -> None:
    demand = Demand(0)
    for moment in range(20):
        demand.ask(moment, found=False, most=4)
    assert allot(20, BOUNDS, {"a": demand}) == {"a": 4}
    assert len(demand.missed_at) == 4


def test_every_kind_gets_its_first_ones_before_any_gets_more() -> None:
    demands = {"old": Demand(1), "new": Demand(2, missed_at=[2, 2, 2, 2])}
    assert allot(3, BOUNDS, demands) == {"new": 3, "old": 1}


def test_memory_is_for_the_kinds_that_were_asked_for_last() -> None:
    demands = {"old": Demand(1, kernel_bytes=600 * MiB), "new": Demand(2, kernel_bytes=600 * MiB)}
    assert allot(3, BOUNDS, demands) == {"new": 1, "old": 0}
    assert plan(3, BOUNDS, demands, ["old"]).end == ("old",)


def test_what_was_not_measured_is_taken_to_have_something() -> None:
    bounds = PoolBounds(4, 10, 2 * ASSUMED_BYTES, 600)
    assert allot(0, bounds, {"a": Demand(0)}) == {"a": 2}


def test_what_is_always_lost_is_given_up_until_somebody_asks() -> None:
    demand = Demand(0, lost=3)
    assert plan(1, BOUNDS, {"a": demand}, []).start is None
    demand.ask(2, found=False, most=4)
    assert plan(2, BOUNDS, {"a": demand}, []).start == "a"


def test_another_kernelspec_or_environment_replaces_a_kind() -> None:
    assert kind("2").is_newer_than(kind("1"))
    assert kind(A="1").is_newer_than(kind(A="2"))
    assert not kind().is_newer_than(kind())
    assert not kind("2").is_newer_than(kind("1", isolate="sandbox"))


def test_kinds_of_two_policies_are_kept_side_by_side() -> None:
    rules = frozenset({("NETWORK", "")})
    plain, ruled = kind(), replace(kind(NETWORK=""), of_policies=rules)
    assert not plain.is_newer_than(ruled) and not ruled.is_newer_than(plain)
    assert replace(ruled, version="2").is_newer_than(ruled)


def test_an_environment_is_not_shown() -> None:
    assert "hunter2" not in repr(kind(PASSWORD="hunter2"))


TIMES = st.floats(0, 2000)
DEMANDS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Demand,
        asked_at=TIMES,
        missed_at=st.lists(TIMES, max_size=8),
        kernel_bytes=st.integers(0, 400 * MiB),
        lost=st.integers(0, 4),
        always=st.booleans(),
    ),
)
SOME_BOUNDS = st.builds(
    PoolBounds,
    size=st.integers(1, 4),
    max_kernels=st.integers(1, 8),
    memory_bytes=st.integers(0, 2000 * MiB),
    idle_seconds=st.just(0.0) | st.floats(0.001, 1000),  # less than that is lost beside the time
)


@given(now=TIMES, bounds=SOME_BOUNDS, demands=DEMANDS, held=st.lists(st.sampled_from("abcdef"), max_size=12))
def test_a_pool_comes_to_rest_within_its_bounds(
    now: float, bounds: PoolBounds, demands: dict[str, Demand], held: list[str]
) -> None:
    for _ in range(bounds.max_kernels + 1):
        step = plan(now, bounds, demands, held)
        for surplus in step.end:
            held.remove(surplus)
        if step.start is None:
            break
        assert step.start not in step.end
        held = [*held, step.start]
    assert plan(now, bounds, demands, held).start is None
    assert plan(now, bounds, demands, held).end == ()
    assert len(held) <= bounds.max_kernels
    assert sum(demands[name].kernel_bytes or ASSUMED_BYTES for name in held) <= bounds.memory_bytes
    assert all(number <= demands[name].count_wanted(now, bounds) for name, number in Counter(held).items())


@given(now=TIMES, bounds=SOME_BOUNDS, demands=DEMANDS)
def test_nothing_changes_before_it_is_time_to_look_again(
    now: float, bounds: PoolBounds, demands: dict[str, Demand]
) -> None:
    again = plan(now, bounds, demands, []).look_again_at
    before = allot(now, bounds, demands)
    later = now + 5000 if again is None else (now + again) / 2
    assert again is None or again > now
    assume(again is None or later < again)  # there is no number between them
    assert allot(later, bounds, demands) == before
