"""Selection of one place for each test of a commit: a host, a client, an image or an executor's kernel.

`python -m tests.full` runs every test in all its places.
Tests with the marker `every_place` run in all of them in every commit: those of access, and the contract suite, which
has a choice of its own.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

#: Values of parameters that name a place.
PLACES = frozenset(
    {
        *("server", "server-base-url", "gateway", "lab", "hub"),
        *("plain server", "plain_server", "plain_gateway", "enterprise_gateway", "embedded"),
        *("sync", "async", "async with an async credential"),
        *("ours", "custom"),
    }
)


def is_place(value: Any) -> bool:
    """Return whether the value of a test's parameter selects where the test runs."""
    return isinstance(value, str) and value in PLACES


def choose_left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests to leave out, so that each remains in one place; tests of a module in the same, where they can.

    Parameters
    ----------
    items : sequence of pytest.Item
        Tests. Those that differ in nothing but their place belong together.
    """
    groups: dict[Hashable, list[pytest.Item]] = defaultdict(list)
    for item in items:
        params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        others = [(name, repr(value)) for name, value in sorted(params.items()) if not is_place(value)]
        if len(others) < len(params) and item.get_closest_marker("every_place") is None:
            groups[item.path, getattr(item, "originalname", ""), tuple(others)].append(item)
    return [
        item
        for group in groups.values()
        for item in group
        if item is not group[zlib.crc32(item.path.name.encode()) % len(group)]
    ]
