"""Message streams: order, bounds, and readers that come and go."""

from __future__ import annotations

import asyncio
import json

from jupyter_exec_ext.mcp.message_stream import MAX_MESSAGES, MessageStream


async def texts(stream: MessageStream, after: int = 0) -> list[str]:
    return [json.loads(data)["text"] for _, data in await stream.read(after, 5)]


async def test_messages_are_read_in_order_after_a_number() -> None:
    stream = MessageStream("7")
    for text in ("a", "b", "c"):
        stream.add({"text": text})
    assert await texts(stream) == ["a", "b", "c"]
    assert await texts(stream, 2) == ["c"]
    assert (stream.last_number, stream.is_ended) == (3, False)


async def test_slow_reader_loses_the_oldest_messages_beyond_the_number() -> None:
    stream = MessageStream()
    for number in range(MAX_MESSAGES + 10):
        stream.add({"text": str(number)})
    found = await stream.read(0, 5)
    assert [number for number, _ in found] == list(range(11, MAX_MESSAGES + 11))


async def test_slow_reader_loses_the_oldest_messages_beyond_the_size_but_never_the_newest() -> None:
    stream = MessageStream(max_bytes=1000)
    for _ in range(5):
        stream.add({"text": "x" * 500})
    assert [number for number, _ in await stream.read(0, 5)] == [5]
    stream.end(b'"' + b"y" * 2000 + b'"')
    assert [(number, len(data)) for number, data in await stream.read(0, 5)] == [(6, 2002)]


async def test_reader_waits_for_the_next_message() -> None:
    stream = MessageStream()
    reading = asyncio.create_task(texts(stream))
    await asyncio.sleep(0)
    stream.add({"text": "late"})
    assert await reading == ["late"]


async def test_ended_stream_takes_no_more_messages() -> None:
    stream = MessageStream()
    stream.end(b'{"text": "last"}')
    stream.add({"text": "after"})
    stream.end(b'{"text": "again"}')
    assert await texts(stream) == ["last"]
    assert await texts(stream, 1) == []
    assert (stream.is_ended, stream.last_message) == (True, b'{"text": "last"}')


async def test_end_detach_and_wake_release_a_reader_without_messages() -> None:
    for release in (MessageStream.end, MessageStream.detach, MessageStream.wake):
        stream = MessageStream()
        reading = asyncio.create_task(stream.read(0, 60))
        await asyncio.sleep(0)
        release(stream)
        assert list(await asyncio.wait_for(reading, 5)) == []


async def test_reader_that_comes_back_reads_what_was_added_meanwhile() -> None:
    stream = MessageStream("1")
    stream.detach()
    stream.add({"text": "meanwhile"})
    assert stream.is_detached
    stream.attach()
    assert not stream.is_detached
    assert await texts(stream) == ["meanwhile"]


async def test_replaced_messages_give_way_to_one_with_the_last_number() -> None:
    stream = MessageStream("1")
    stream.add({"text": "a"})
    stream.end(b'{"text": "last"}')
    stream.replace_messages(b'{"text": "lost"}')
    assert (list(await stream.read(0, 5)), stream.size_bytes) == ([(2, b'{"text": "lost"}')], 16)


async def test_read_returns_nothing_when_the_time_is_up() -> None:
    assert list(await MessageStream().read(0, 0.001)) == []
