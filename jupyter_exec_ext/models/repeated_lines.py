"""Folding of repeated lines in tracebacks: an endless recursion is its first and last frames, and a count. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# So many times a group of lines has to stand there before it is folded.
_LEAST_TIMES = 5
# Lines of a group: the frames of one round of a recursion. Equal lines that are looked at to find it.
_MAX_GROUP_LINES, _MAX_GUESSES = 400, 6


def fold_repeats(text: str) -> str:
    """Return a traceback with groups of lines that follow each other many times shown at the first and last time.

    Parameters
    ----------
    text : str
        Of any language: only whole lines are compared.
    """
    lines = text.split("\n")
    return "\n".join(_folded(lines)) if len(lines) > _LEAST_TIMES else text


def _folded(lines: Sequence[str]) -> Iterator[str]:
    following = _next_equal_lines(lines)
    position = 0
    while position < len(lines):
        size, times = _group_at(lines, following, position)
        if times < _LEAST_TIMES:
            yield lines[position]
            position += 1
            continue
        group = lines[position : position + size]
        yield from group
        which = "line above was" if size == 1 else f"{size} lines above were"
        yield f"[... the {which} repeated {times - 2:,} more times ...]"
        yield from group
        position += size * times


def _next_equal_lines(lines: Sequence[str]) -> list[int]:
    """Return where each line stands again; the length of all where it does not."""
    following, last_seen = [0] * len(lines), dict[str, int]()
    for position in range(len(lines) - 1, -1, -1):
        following[position] = last_seen.get(lines[position], len(lines))
        last_seen[lines[position]] = position
    return following


def _group_at(lines: Sequence[str], following: Sequence[int], position: int) -> tuple[int, int]:
    """Return how many lines from here on follow each other again and again, and how many times they stand there."""
    again = position
    for _ in range(_MAX_GUESSES):
        again = following[again]
        size = again - position
        if again >= len(lines) or size > _MAX_GROUP_LINES:
            break
        group, times = lines[position:again], 1
        while lines[position + times * size : position + (times + 1) * size] == group:
            times += 1
        if times >= _LEAST_TIMES:
            return size, times
    return 0, 0
