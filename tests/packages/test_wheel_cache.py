"""Cache of wheels: verified at each use, replaced atomically, and bounded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.packages import wheel_cache
from jupyter_exec_ext.engine.packages.wheel_cache import WheelCache
from tests.support.wheels import make_wheel


def add(cache: WheelCache, key: str, *names: str, size_bytes: int = 0) -> list[Path]:
    incoming = cache.make_incoming()
    wheels = [make_wheel(incoming, name, size_bytes=size_bytes) for name in names]
    added = cache.add(key, wheels)
    cache.remove_incoming(incoming)
    assert not incoming.exists()
    return added


@pytest.fixture
def cache(tmp_path: Path) -> WheelCache:
    return WheelCache(tmp_path / "cache", 1_000_000)


def test_added_wheels_are_found_by_their_key(cache: WheelCache) -> None:
    added = add(cache, "a", "one", "two")
    assert cache.find("a") == added
    assert [path.parent for path in added] == [cache.wheels] * 2
    assert cache.find("b") is None


def test_changed_wheel_is_not_used_and_can_be_replaced(cache: WheelCache) -> None:
    (wheel,) = add(cache, "a", "one")
    wheel.chmod(0o600)
    wheel.write_bytes(wheel.read_bytes() + b"x")
    assert cache.find("a") is None
    add(cache, "a", "one")
    assert cache.find("a") == [wheel]


def test_wheel_that_cannot_be_read_is_not_used(cache: WheelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> str:
        raise PermissionError(path)

    add(cache, "a", "one")
    monkeypatch.setattr(wheel_cache, "_digest", deny)
    assert cache.find("a") is None


def test_removed_wheel_is_not_used(cache: WheelCache) -> None:
    (wheel,) = add(cache, "a", "one")
    wheel.unlink()
    assert cache.find("a") is None


def test_requirements_are_resolved_again_after_a_day(cache: WheelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    add(cache, "a", "one")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + wheel_cache.FRESH_SECONDS + 1)
    assert cache.find("a") is None


def test_least_recently_used_wheels_go_when_there_is_no_room(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path, 7_500)  # two of these
    first, second = add(cache, "a", "one", size_bytes=2_000) + add(cache, "b", "two", size_bytes=2_000)
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    assert cache.find("a") == [first]  # used again
    add(cache, "c", "three", size_bytes=2_000)
    assert (cache.find("a") is not None, cache.find("b")) == (True, None)


def test_wheels_of_one_set_are_kept_together_although_they_are_too_large(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path, 1)
    assert add(cache, "a", "one", "two") == cache.find("a")
