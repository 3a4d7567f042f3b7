"""Turns: bounded, in rotation, and given back however their block ends."""

from __future__ import annotations

import asyncio
import random

import pytest

from jupyter_exec_ext.engine.concurrency import FairTurns


async def work(turns: FairTurns, key: str, done: list[str], count: int = 1) -> None:
    for _ in range(count):
        async with turns.turn(key):
            await asyncio.sleep(0)
            done.append(key)


async def test_one_turn_at_a_time_is_given_in_rotation() -> None:
    turns, done = FairTurns(1), list[str]()
    many = [work(turns, "a", done) for _ in range(20)]
    await asyncio.gather(*many, work(turns, "b", done, 3), work(turns, "c", done, 3))
    assert done[:12].count("b") == 3
    assert done[:12].count("c") == 3
    assert done.count("a") == 20


@pytest.mark.parametrize(("at_once", "per_key"), [(1, None), (3, None), (3, 2), (None, 2), (None, 1), (8, 3)])
async def test_never_more_than_the_bounds_have_a_turn(at_once: int | None, per_key: int | None) -> None:
    turns, rng = FairTurns(at_once, per_key=per_key), random.Random(3)
    having: dict[str, int] = dict.fromkeys("abcd", 0)
    most = {"all": 0, "key": 0}

    async def one(key: str) -> None:
        async with turns.turn(key):
            having[key] += 1
            most["all"], most["key"] = max(most["all"], sum(having.values())), max(most["key"], having[key])
            try:
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                having[key] -= 1
            if rng.random() < 0.2:
                raise ZeroDivisionError

    tasks = [asyncio.ensure_future(one(rng.choice("abcd"))) for _ in range(300)]
    await asyncio.sleep(0)
    for task in rng.sample(tasks, 60):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most["all"] <= (at_once or 4 * (per_key or 0))
    assert most["all"] == at_once or most["key"] == per_key  # it was reached
    assert per_key is None or most["key"] <= per_key
    assert turns._waiting == {}
    assert not turns._taken


async def test_turn_that_was_granted_to_a_cancelled_task_goes_to_the_next() -> None:
    turns, done = FairTurns(1), list[str]()
    async with turns.turn("a"):
        waiting = asyncio.ensure_future(work(turns, "b", done))
        await asyncio.sleep(0)
    waiting.cancel()  # granted, and not yet resumed
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(work(turns, "c", done), 5)
    assert done == ["c"]


async def test_key_at_its_bound_holds_up_no_other() -> None:
    turns, done = FairTurns(3, per_key=1), list[str]()
    async with turns.turn("a"):
        blocked = [asyncio.ensure_future(work(turns, "a", done)) for _ in range(5)]
        await asyncio.wait_for(work(turns, "b", done, 10), 5)
        assert done == ["b"] * 10
    await asyncio.gather(*blocked)
