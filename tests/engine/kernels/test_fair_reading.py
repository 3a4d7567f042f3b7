"""Turns one after the other, with rests."""

from __future__ import annotations

import asyncio
import time

import pytest

from jupyter_exec_ext.engine.kernels.backpressure import Turns


async def test_everybody_gets_a_turn_in_order_and_others_in_between() -> None:
    turns, seen, over = Turns(), [], asyncio.Event()

    def turn(name: str, left: int) -> None:
        seen.append(name)
        time.sleep(0.01)  # this is its work
        if left:
            turns.take(lambda: turn(name, left - 1))
        elif name == "b":
            over.set()

    for name in "ab":
        turns.take(lambda name=name: turn(name, 2))  # type: ignore[misc]
    began, others = time.monotonic(), 0
    while not over.is_set():
        await asyncio.sleep(0.001)
        others += 1
    assert seen == ["a", "b"] * 3
    assert time.monotonic() - began >= 0.01 * 5 * 4
    assert others > 50


class Clock:
    """Goes on while there is work or somebody else has the processor, and for nothing else."""

    def __init__(self) -> None:
        self.seconds = self.worked = self.used = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def thread_time(self) -> float:
        return self.worked

    def process_time(self) -> float:
        return self.used


@pytest.mark.parametrize(
    ("worked", "used", "passed", "rests"),
    [
        (0.01, 0.01, 0.01, False),
        (0.01, 0.03, 0.03, False),  # other threads, or what the loop did before
        (0.01, 0.03, 0.02, False),  # at the same time, on two processors
        (0.01, 0.01, 0.03, True),  # another process had the processor
    ],
)
async def test_one_that_is_alone_rests_only_where_it_waits_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, worked: float, used: float, passed: float, rests: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.backpressure.time", clock)
    turns, over = Turns(), asyncio.Event()

    def turn(left: int) -> None:
        clock.worked, clock.used, clock.seconds = clock.worked + worked, clock.used + used, clock.seconds + passed
        if left:
            turns.take(lambda: turn(left - 1))
        else:
            over.set()

    began = time.monotonic()
    turns.take(lambda: turn(10))
    await over.wait()
    assert (time.monotonic() - began >= 0.5) == rests  # with rests it is a second


async def test_a_rest_that_is_over_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes long after a flood does not have to wait."""
    clock = Clock()
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.backpressure.time", clock)
    turns, done = Turns(), asyncio.Event()

    def waits_for_a_processor() -> None:
        clock.seconds += 60.0
        done.set()

    for idle, rests in ((0.0, True), (0.05, True), (0.2, False)):
        done.clear()
        turns.take(waits_for_a_processor)
        await done.wait()
        done.clear()
        clock.seconds += idle
        began = time.monotonic()
        turns.take(done.set)
        await done.wait()
        assert (time.monotonic() - began >= 0.03) == rests
        clock.seconds += 1.0


async def test_a_turn_that_fails_does_not_take_the_others_theirs() -> None:
    turns, over = Turns(), asyncio.Event()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def fail() -> None:
        raise RuntimeError("a defect of ours")

    turns.take(fail)
    turns.take(over.set)
    await asyncio.wait_for(over.wait(), 30)
    assert len(errors) == 1


async def test_after_the_close_nobody_is_called() -> None:
    turns, seen = Turns(), []
    turns.take(lambda: seen.append(1))
    turns.close()
    await asyncio.sleep(0.05)
    assert seen == []
