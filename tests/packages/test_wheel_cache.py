"""Cache of wheels: verified at each use, replaced atomically, and bounded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.packages import wheel_cache
from jupyter_exec_ext.engine.packages.wheel_cache import CachedWheel, WheelCache
from jupyter_exec_ext.engine.packages.wheel_download import DOWNLOAD_SECONDS
from jupyter_exec_ext.errors import PackagesNotFound
from tests.support.wheels import make_wheel


def add(cache: WheelCache, key: str, *names: str, size_bytes: int = 0) -> list[CachedWheel]:
    incoming = cache.make_incoming()
    try:
        return cache.add(key, {make_wheel(incoming, name, size_bytes=size_bytes): 7 for name in names})
    finally:
        cache.remove_incoming(incoming)
        assert not list(incoming.parent.iterdir())


@pytest.fixture
def cache(tmp_path: Path) -> WheelCache:
    return WheelCache(tmp_path / "cache", 1_000_000, "index")


def test_added_wheels_are_found_by_their_key(cache: WheelCache) -> None:
    added = add(cache, "a", "one", "two")
    assert cache.find("a") == added
    assert [wheel.path.parent for wheel in added] == [cache.wheels] * 2
    assert [wheel.unpacked_bytes for wheel in added] == [7, 7]
    assert cache.find("b") is None


def test_changed_wheel_is_not_used_and_can_be_replaced(cache: WheelCache) -> None:
    (wheel,) = add(cache, "a", "one")
    wheel.path.chmod(0o600)
    wheel.path.write_bytes(wheel.path.read_bytes() + b"x")
    assert cache.find("a") is None
    add(cache, "a", "one")
    assert cache.find("a") == [wheel]


def test_other_wheel_of_the_same_name_is_refused_and_replaces_nothing(cache: WheelCache) -> None:
    (wheel,) = add(cache, "a", "one")
    content = wheel.path.read_bytes()
    with pytest.raises(PackagesNotFound, match="another content"):
        add(cache, "b", "two", "one", size_bytes=1)
    assert (wheel.path.read_bytes(), cache.find("a"), cache.find("b")) == (content, [wheel], None)
    assert [path.name for path in cache.wheels.iterdir()] == [wheel.path.name]


def test_wheels_of_two_sources_are_apart_and_share_the_limit(tmp_path: Path) -> None:
    index, wheelhouse = (WheelCache(tmp_path, 7_500, source) for source in ("index", "wheelhouse"))
    (wheel,) = add(index, "a", "one", size_bytes=2_000)
    add(wheelhouse, "a", "one", size_bytes=3_000)
    assert index.find("a") == [wheel]
    assert [path.stat().st_size > 3_000 for path in wheelhouse.wheels.iterdir()] == [True]
    os.utime(wheel.path, (1, 1))
    add(wheelhouse, "b", "two", size_bytes=2_000)
    assert index.find("a") is None


def test_evicted_name_is_free_again(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path, 1, "index")
    add(cache, "a", "one")
    add(cache, "b", "two")
    assert add(cache, "c", "one", size_bytes=1) == cache.find("c")


@pytest.mark.parametrize("text", ["", '{"at"', "{}", "[]", '{"at": 1e12, "wheels": [["x"]]}'])
def test_damaged_set_is_resolved_again(cache: WheelCache, text: str) -> None:
    (wheel,) = add(cache, "a", "one")
    for directory in ("sets", "digests"):
        for file in (cache.wheels.parent / directory).iterdir():
            file.write_text(text)
    assert cache.find("a") is None
    assert add(cache, "a", "one") == [wheel] == cache.find("a")


def test_wheel_that_cannot_be_read_is_not_used(cache: WheelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> str:
        raise PermissionError(path)

    add(cache, "a", "one")
    monkeypatch.setattr(wheel_cache, "_digest", deny)
    assert cache.find("a") is None


def test_removed_wheel_is_not_used(cache: WheelCache) -> None:
    (wheel,) = add(cache, "a", "one")
    wheel.path.unlink()
    assert cache.find("a") is None


def test_requirements_are_resolved_again_after_a_day(cache: WheelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    add(cache, "a", "one")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + wheel_cache.FRESH_SECONDS + 1)
    assert cache.find("a") is None


def test_least_recently_used_wheels_go_when_there_is_no_room(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path, 7_500, "index")  # two of these
    first, second = add(cache, "a", "one", size_bytes=2_000) + add(cache, "b", "two", size_bytes=2_000)
    os.utime(first.path, (1, 1))
    os.utime(second.path, (2, 2))
    assert cache.find("a") == [first]  # used again
    add(cache, "c", "three", size_bytes=2_000)
    assert (cache.find("a") is not None, cache.find("b")) == (True, None)


def test_wheels_of_one_set_are_kept_together_although_they_are_too_large(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path, 1, "index")
    assert add(cache, "a", "one", "two") == cache.find("a")


def test_downloads_of_a_killed_server_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    index, wheelhouse = (WheelCache(tmp_path, 1_000_000, source) for source in ("index", "wheelhouse"))
    stale, running = index.make_incoming(), index.make_incoming()
    for directory in (stale, running):
        (directory / "wheels").mkdir()
        make_wheel(directory / "wheels", "one")
    long_ago = time.time() - wheel_cache._STALE_SECONDS - 1
    os.utime(stale, (long_ago, long_ago))
    assert wheel_cache._STALE_SECONDS > 10 * DOWNLOAD_SECONDS
    wheelhouse.prepare()
    assert (stale.exists(), running.exists()) == (False, True)
