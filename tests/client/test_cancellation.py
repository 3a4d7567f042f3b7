"""Cancelled calls of the asynchronous client: whatever cancels them, their code stops and nothing of them is left."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Coroutine
from itertools import product
from typing import Any

import anyio
import pytest

from jupyter_exec_ext import AsyncExecClient
from jupyter_exec_ext.client import AsyncExecSession
from jupyter_exec_ext.models import Session, SessionState, StreamEvent
from tests.support.full import IS_FULL, scaled
from tests.support.hosts import Host

FOREVER = "import time\nprint('go', flush=True)\nwhile True: time.sleep(0.1)"
_STOPPED_WITHIN_SECONDS = 3.0
# The server ends a session whose maker has left once its kernel has started.
_STARTED_WITHIN_SECONDS = 20.0

Call = Callable[[AsyncExecClient, AsyncExecSession, asyncio.Event], Coroutine[Any, Any, Any]]


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


async def run(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    asyncio.get_running_loop().call_later(0.3, began.set)
    await session.run(FOREVER)


async def run_with_events(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    await session.run(FOREVER, on_event=lambda event: began.set() if isinstance(event, StreamEvent) else None)


async def stream(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    async for event in session.stream(FOREVER):
        if isinstance(event, StreamEvent):
            began.set()


async def run_at_once(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    """Begin to be cancelled before the request can have been answered, or even sent."""
    began.set()
    await session.run(FOREVER)


async def run_in_a_fresh_session(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    await client.run(FOREVER, on_event=lambda event: began.set() if isinstance(event, StreamEvent) else None)


async def start_a_session(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    """Start one that is not in the pool, which takes a while; one that was there sooner is closed."""
    asyncio.get_running_loop().call_later(0.2, began.set)
    own = await client.session(env={"OWN": "1"})
    await own.close()
    await anyio.sleep_forever()


async def use_a_session(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    async with await client.session() as own:
        await stream(client, own, began)


class Slow(io.BytesIO):
    """A file that takes its time, so that an upload can be cancelled in the middle of it."""

    def read(self, size: int | None = -1) -> bytes:
        time.sleep(0.1)
        return super().read(min(size or 0, 16 * 1024))


async def upload(client: AsyncExecClient, session: AsyncExecSession, began: asyncio.Event) -> None:
    await session.upload(Slow(bytes(1024 * 1024)), "uploaded", progress=lambda sent, total: began.set())


async def by_task(call: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> float:
    began = asyncio.Event()
    task = asyncio.ensure_future(call(began))
    await began.wait()
    cancelled_at = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return cancelled_at


async def by_timeout(call: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> float:
    cancelled_at = time.monotonic() + 1.0
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(call(asyncio.Event()), 1.0)
    return cancelled_at


async def by_scope(call: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> float:
    cancelled_at = time.monotonic() + 1.0
    with anyio.move_on_after(1.0) as scope:
        await call(asyncio.Event())
    assert scope.cancelled_caught
    return cancelled_at


async def by_deadline(call: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> float:
    cancelled_at = time.monotonic() + 1.0
    with pytest.raises(TimeoutError), anyio.fail_after(1.0):
        await call(asyncio.Event())
    return cancelled_at


async def by_task_group(call: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> float:
    began = asyncio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(call, began)
        await began.wait()
        cancelled_at = time.monotonic()
        group.cancel_scope.cancel()
    return cancelled_at


async def none_runs(client: AsyncExecClient, sessions: set[str]) -> float:
    """Wait until nothing runs, and no session but these is left; return when nothing ran any more."""
    await _none(client, lambda one: one.state is SessionState.BUSY, _STOPPED_WITHIN_SECONDS)
    stopped_at = time.monotonic()
    await _none(client, lambda one: one.id not in sessions, _STARTED_WITHIN_SECONDS)
    return stopped_at


async def _none(client: AsyncExecClient, wrong: Callable[[Session], bool], within_seconds: float) -> None:
    give_up_at = time.monotonic() + within_seconds
    while found := [one.id for one in await client.list_sessions() if wrong(one)]:
        assert time.monotonic() < give_up_at, f"still there after {within_seconds:g} s: {found}"
        await asyncio.sleep(0.05)


CALLS = [run, run_with_events, stream, run_at_once, run_in_a_fresh_session, start_a_session, use_a_session, upload]
CANCELS = [by_task, by_timeout, by_scope, by_deadline, by_task_group]


# Each call and each way with every commit; all pairs in full, 1,000 cancellations.
PAIRS = list(product(CALLS, CANCELS)) if IS_FULL else list(zip(CALLS, CANCELS * 2, strict=False))
TIMES = scaled(25, per_commit=1)


@pytest.mark.timeout(60 + 10 * TIMES)
@pytest.mark.parametrize(("call", "cancel"), PAIRS)
async def test_cancelled_call_stops_its_code(
    host: Host, call: Call, cancel: Callable[..., Coroutine[Any, Any, float]]
) -> None:
    stopped_after: list[float] = []
    async with AsyncExecClient(host.info) as client, await client.session() as session:
        before = {one.id for one in await client.list_sessions()}
        for _ in range(TIMES):
            cancelled_at = await cancel(lambda began: call(client, session, began))
            stopped_after.append(await none_runs(client, before) - cancelled_at)
        assert (await session.run("1 + 1")).ok
        assert await session.list_files() == []  # nothing half uploaded
    assert max(stopped_after) < _STOPPED_WITHIN_SECONDS
    print(f"\n{call.__name__} {cancel.__name__}: {' '.join(f'{seconds:.2f}' for seconds in stopped_after)}")


def test_ending_event_loop_stops_running_code(host: Host) -> None:
    async def leave() -> None:
        with anyio.move_on_after(1.0):
            async with AsyncExecClient(host.info) as client, await client.session() as session:
                await session.run(FOREVER)

    async def look() -> None:
        async with AsyncExecClient(host.info) as client:
            await none_runs(client, before)

    async def sessions() -> set[str]:
        async with AsyncExecClient(host.info) as client:
            return {one.id for one in await client.list_sessions()}

    before = asyncio.run(sessions())
    asyncio.run(leave())
    asyncio.run(look())
