"""Turns of contenders, so that a slow moment of the machine hits all alike. Pure but for what it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def rotated(order: Sequence[str], number: int) -> list[str]:
    """Return the order of a round: each begins with another one, so that nobody always follows the same one's mess."""
    start = number % len(order) if order else 0
    return [*order[start:], *order[:start]]


def interleaved(
    contenders: Mapping[str, Callable[[], T]],
    rounds: int,
    warm_up: int,
    settle: Callable[[], None] = lambda: None,
) -> dict[str, list[T]]:
    """Let every contender run once a round.

    Parameters
    ----------
    contenders : mapping
        By name what does it once and returns the sample. What fails, fails the whole.
    rounds : int
        Rounds that count.
    warm_up : int
        Rounds before them that do not.
    settle : callable
        Called before each, to let what the last one left behind come to its end.
    """
    samples: dict[str, list[T]] = {name: [] for name in contenders}
    for number in range(warm_up + rounds):
        for name in rotated(list(contenders), number):
            settle()
            sample = contenders[name]()
            if number >= warm_up:
                samples[name].append(sample)
    return samples
