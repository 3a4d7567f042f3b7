"""Requests with one idempotency key at once: all of them find the server that the first one is sent to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_exec_ext.fleet.server_lookup import RunKey, ServerLookup
from jupyter_exec_ext.store.store import ExecStore

_KEY = RunKey("user", "", "key")


@pytest.fixture
def lookup(tmp_path: Path) -> Iterator[ServerLookup]:
    store = ExecStore(path=str(tmp_path))
    yield ServerLookup(store.accepted, store.audit)
    store.close()


async def _turns() -> None:
    """Let other tasks, and the thread that reads the store, go on."""
    for _ in range(20):
        await asyncio.to_thread(int)


async def _run(lookup: ServerLookup, server: str) -> str:
    """Return the server of a run with the key: the one that is known, or this one, after a while."""
    async with lookup.turn(_KEY):
        known = await lookup.server_of_run(_KEY)
        if known is not None:
            return known
        await _turns()
        lookup.note_sent(_KEY, server)
        await _turns()
        lookup.note_accepted(_KEY, f"exe_{server}_{'0' * 24}", server)
        return server


async def test_requests_at_once_with_one_key_go_to_one_server(lookup: ServerLookup) -> None:
    assert len(set(await asyncio.gather(*(_run(lookup, f"w{n}") for n in range(20))))) == 1


async def test_requests_wait_only_until_the_run_is_sent(lookup: ServerLookup) -> None:
    async with lookup.turn(_KEY):
        second = asyncio.create_task(_run(lookup, "w2"))
        await _turns()
        assert not second.done()
        lookup.note_sent(_KEY, "w1")
        assert await second == "w1"


async def test_request_that_waits_chooses_a_server_itself_if_the_first_one_finds_none(lookup: ServerLookup) -> None:
    async with lookup.turn(_KEY):
        second = asyncio.create_task(_run(lookup, "w2"))
        await _turns()
    assert await second == "w2"
