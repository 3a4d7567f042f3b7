"""Service for packages: limits of each principal, retried requests, and the audit trail."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller
from jupyter_exec_ext.engine.files.session_space import require_space
from jupyter_exec_ext.engine.packages.wheel_cache import WheelCache
from jupyter_exec_ext.engine.sessions import package_service
from jupyter_exec_ext.engine.sessions.package_service import PackageService
from jupyter_exec_ext.errors import Conflict, PackagesNotFound, QueueFull
from tests.support.waiting import until
from tests.support.wheels import make_wheel


class Engine:
    """Parts of an engine around a service, with downloads that end when `go` is set."""

    def __init__(self, directory: Path) -> None:
        (directory / "house").mkdir()
        self.cache = WheelCache(directory / "cache", 1_000_000, "house")
        self.go = asyncio.Event()
        self.downloads = 0
        self.begun = asyncio.Semaphore(0)
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[Any] = []
        self.earlier: Any = None
        live = SimpleNamespace(record=SimpleNamespace(kernel_name="python3"), reserve=nullcontext)
        parts: Any = [
            SimpleNamespace(wheelhouse=str(directory / "house"), max_session_bytes=0),
            SimpleNamespace(program_of=lambda _: "python"),
            SimpleNamespace(ensure_can_install=self._return(None), get_cache=self._return(self.cache)),
            SimpleNamespace(get=self._return(SimpleNamespace(owner="owner")), get_live=self._return(live)),
            SimpleNamespace(find_earlier=self._find_earlier, execute=self._execute),
            SimpleNamespace(record=self._record),
        ]
        self.service = PackageService(*parts)

    def _return(self, value: Any) -> Any:
        async def answer(*_: Any) -> Any:
            return value

        return answer

    async def _find_earlier(self, _session: str, _owner: str, key: Any) -> Any:
        self.keys.append(key)
        return self.earlier

    async def _execute(self, *_: Any) -> Any:
        return SimpleNamespace(record=SimpleNamespace(id="exe_1"))

    def _record(self, _kind: str, action: str, *, principal: str, subject: str, **data: Any) -> None:
        self.records.append((action, data))

    async def download(self, _python: str, requirements: list[str], directory: Path, *_: Any, **__: Any) -> Any:
        self.downloads += 1
        self.begun.release()
        await self.go.wait()
        if requirements == ["none"]:
            raise PackagesNotFound("there are none")
        return {make_wheel(directory, requirements[0]): 7}

    def start(self, principal: str, name: str) -> asyncio.Task[Any]:
        return asyncio.create_task(self.service.install(Caller(principal), "ses_1", [name]))


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine(tmp_path)
    monkeypatch.setattr(package_service, "download_wheels", engine.download)
    return engine


async def test_third_download_of_a_token_and_its_descendants_is_refused_and_others_go_on(engine: Engine) -> None:
    started = [engine.start("token:a", "one"), engine.start("token:a/b", "two")]
    await engine.begun.acquire()
    await engine.begun.acquire()
    with pytest.raises(QueueFull) as refusal:
        await engine.service.install(Caller("token:a/c"), "ses_1", ["three"])
    assert (refusal.value.status, refusal.value.retry_after_seconds) == (429, 5.0)
    started.append(engine.start("token:d", "four"))
    await engine.begun.acquire()
    engine.go.set()
    assert len(await asyncio.gather(*started, engine.start("token:d", "five"))) == 4
    await engine.service.install(Caller("token:a"), "ses_1", ["three"])


async def test_lookups_in_the_cache_are_limited_in_threads_and_fair_to_each_token(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.go.set()
    for name in ("one", "two"):
        await engine.service.install(Caller("owner"), "ses_1", [name])
    find, go = engine.cache.find, threading.Event()
    keys: list[str] = []

    def slow_find(key: str) -> Any:
        keys.append(key)
        assert go.wait(30)
        return find(key)

    monkeypatch.setattr(WheelCache, "find", lambda _, key: slow_find(key))
    many = [engine.start(f"token:a/{number}", "one") for number in range(2)]
    await until(lambda: len(keys) == 2)  # these two have the turns of their token
    many += [engine.start(f"token:a/{number}", "one") for number in range(2, 20)]
    other = engine.start("token:b", "two")
    await until(lambda: len(keys) == 3)
    assert len(set(keys)) == 2  # the third one is of the other token
    many[0].cancel()  # its thread goes on, and with it its turn
    assert await asyncio.to_thread(sum, range(10)) == 45
    assert len(keys) == 3 and not many[0].done()
    go.set()
    ended = await asyncio.gather(*many, other, return_exceptions=True)
    assert sum(isinstance(each, asyncio.CancelledError) for each in ended) == 1
    assert (len(keys), engine.downloads) == (21, 2)


async def test_retried_request_downloads_nothing_and_its_key_depends_on_the_requirements_alone(engine: Engine) -> None:
    engine.go.set()
    await engine.service.install(Caller("owner"), "ses_1", ["one"], "key")
    engine.earlier = object()
    assert await engine.service.install(Caller("owner"), "ses_1", ["one"], "key") is engine.earlier
    await engine.service.install(Caller("owner"), "ses_1", ["two"], "key")
    first, second, other = engine.keys
    assert (first == second, first == other, engine.downloads) == (True, False, 1)


async def test_audit_trail_has_a_request_before_its_download_and_its_outcome_afterwards(engine: Engine) -> None:
    installing = engine.start("owner", "none")
    await engine.begun.acquire()
    asked = ("install_asked", {"packages": ["none"]})
    assert engine.records == [asked]
    engine.go.set()
    with pytest.raises(PackagesNotFound):
        await installing
    assert engine.records == [asked, ("install_refused", {"reason": "packages_not_found"})]
    engine.records.clear()
    await engine.service.install(Caller("owner"), "ses_1", ["one"])
    queued = {"execution": "exe_1", "wheels": ["one-1.0-py3-none-any.whl"]}
    assert engine.records == [("install_asked", {"packages": ["one"]}), ("install_queued", queued)]


def test_install_after_the_directory_was_removed_is_a_conflict(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="make a new session"):
        require_space(tmp_path / "gone", 1, 1)
