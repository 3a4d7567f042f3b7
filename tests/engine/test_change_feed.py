"""The change feed by itself: who can go on where, what is kept, and what whoever falls behind is told."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import replace

import pytest

from jupyter_exec_ext.engine import change_feed as module
from jupyter_exec_ext.engine.change_feed import RESET, SESSION, ChangeFeed, FeedEntry, resumable
from jupyter_exec_ext.models import Session, SessionState
from jupyter_exec_ext.protocol.sse import EventStreamDecoder, encode_event


def session(number: int = 0, **fields: object) -> Session:
    record = Session(f"ses_{number}", "owner", "python3", "python", SessionState.IDLE, "then", "then")
    return replace(record, **fields)  # type: ignore[arg-type]


def told(changes: object) -> list[str]:
    assert isinstance(changes, (list, tuple))
    return [change.kind if change.kind == RESET else json.loads(change.data)[SESSION]["id"] for change in changes]


@pytest.mark.parametrize(
    ("cursor", "number"),
    [
        ("boot-5", 5),
        ("boot-9", 9),
        ("boot-4", None),  # what came after it is gone
        ("boot-10", None),  # there was no such thing yet
        ("other-5", None),  # of another server
        ("boot", None),
        ("", None),
        ("boot-", None),
        ("boot-+5", None),
        ("boot-\u0665", None),  # a five, too
        ("boot-" + "0" * 40 + "5", None),
        ("boot--5", None),
    ],
)
def test_a_cursor_is_good_where_nothing_is_missing_after_it(cursor: str, number: int | None) -> None:
    assert resumable(cursor, "boot", oldest=5, newest=9) == number


async def test_a_reader_begins_with_a_reset_and_then_reads_what_happens() -> None:
    feed = ChangeFeed()
    with feed.watch("") as reader:
        assert told(await reader.read(1)) == [RESET]
        assert await reader.read(0.01) == ()
        later = asyncio.create_task(reader.read(30))
        await asyncio.sleep(0)
        feed.note_session(session(1))
        feed.note_session(session(2))
        assert told(await later) == ["ses_1", "ses_2"]


async def test_nothing_is_kept_while_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_SECONDS", 0.0)
    feed = ChangeFeed()
    assert not feed.wanted
    with feed.watch("") as reader:
        (begin,) = await reader.read(1) or ()
        assert feed.wanted
        feed.note_session(session(1))
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, later.set)  # timers come in their order
    await later.wait()
    assert not feed.wanted
    feed.note_session(session(2))  # as somebody does who did not look
    assert not feed._ring
    with feed.watch(begin.cursor) as reader:
        assert told(await reader.read(1)) == [RESET]  # what happened meanwhile is not known


async def test_whoever_comes_back_soon_goes_on_where_they_were() -> None:
    feed = ChangeFeed()
    with feed.watch("") as reader:
        await reader.read(1)
        feed.note_session(session(1))
        ((seen,),) = [await reader.read(1) or ()]
    feed.note_session(session(2))
    with feed.watch(seen.cursor) as reader:
        assert told(await reader.read(1)) == ["ses_2"]
    with ChangeFeed().watch(seen.cursor) as reader:
        assert told(await reader.read(1)) == [RESET]


@pytest.mark.parametrize("limit", ["_MAX_CHANGES", "_MAX_BYTES"])
async def test_a_slow_reader_costs_no_memory_and_starts_over(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    large = session(metadata={"a": "x" * 1000})
    monkeypatch.setattr(module, limit, 10 if limit == "_MAX_CHANGES" else 16_000)
    feed = ChangeFeed()
    with feed.watch("") as slow, feed.watch("") as quick:
        await slow.read(1)
        await quick.read(1)
        for number in range(100):
            feed.note_session(replace(large, id=f"ses_{number}"))
            assert told(await quick.read(1)) == [f"ses_{number}"]
        assert len(feed._ring) <= 10
        assert sum(len(change.data) for change in feed._ring) == feed._ring_bytes <= 16_000
        assert told(await slow.read(1)) == [RESET]
        feed.note_session(session(200))
        assert told(await slow.read(1)) == ["ses_200"]


async def test_what_is_too_large_for_the_ring_makes_readers_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    feed = ChangeFeed()
    with feed.watch("") as reader:
        await reader.read(1)
        feed.note_session(session(metadata={"a": "x" * 1000}))
        assert told(await reader.read(1)) == [RESET]
        assert await reader.read(0.01) == ()


async def test_many_changes_are_read_in_order_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHANGES_PER_READ", 7)
    feed = ChangeFeed()
    with feed.watch("") as reader:
        await reader.read(1)
        for number in range(100):
            feed.note_session(session(number))
        found: list[str] = []
        while changes := await reader.read(0.01):
            assert len(changes) <= 7
            found += told(changes)
        assert found == [f"ses_{number}" for number in range(100)]


async def test_what_cannot_be_told_makes_everybody_start_over() -> None:
    feed = ChangeFeed()
    with feed.watch("") as reader:
        ((begin,),) = [await reader.read(1) or ()]
        later = asyncio.create_task(reader.read(30))
        await asyncio.sleep(0)
        feed.start_over()
        ((again,),) = [await later or ()]
        assert isinstance(again, FeedEntry) and again.kind == RESET and again.cursor != begin.cursor


async def test_a_feed_that_ends_lets_its_readers_read_what_is_left() -> None:
    feed = ChangeFeed()
    with feed.watch("") as reader, feed.watch("") as waiting:
        await reader.read(1)
        await waiting.read(1)
        later = asyncio.create_task(waiting.read(30))
        await asyncio.sleep(0)
        feed.note_session(session(1))
        feed.close()
        assert told(await reader.read(1)) == ["ses_1"]
        assert await reader.read(1) is None
        assert told(await later) == ["ses_1"]
        assert await waiting.read(1) is None


async def test_a_reader_that_is_closed_waits_no_more() -> None:
    feed = ChangeFeed()
    with feed.watch("") as reader:
        await reader.read(1)
        later = asyncio.create_task(reader.read(30))
        await asyncio.sleep(0)
        feed.note_session(session(1))
        reader.close()
        assert await later is None
        assert await reader.read(1) is None


async def test_each_change_is_encoded_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def counted(*args: object) -> tuple[bytes, bytes, bytes]:
        encoded.append(1)
        return encode_event(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "encode_event", counted)
    feed = ChangeFeed()
    with ExitStack() as stack:
        readers = [stack.enter_context(feed.watch("")) for _ in range(50)]
        for reader in readers:
            await reader.read(1)
        encoded.clear()
        for number in range(20):
            feed.note_session(session(number, metadata={"a": "x\ud800\n" * 100}))
        sent = [await reader.read(1) or () for reader in readers]
    assert len(encoded) == 20
    for number in range(20):
        assert len({id(entries[number].frame) for entries in sent}) == 1
        (event,) = EventStreamDecoder().feed(sent[0][number].frame)
        assert (event.id, event.event) == (sent[0][number].cursor, SESSION)
        assert event.data.encode() == sent[0][number].data
