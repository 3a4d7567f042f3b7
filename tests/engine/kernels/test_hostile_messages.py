"""A connection to a kernel that sends what no kernel should: it goes on, in bounded memory, with a short log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.engine.kernels.kernel_connection import KernelConnection
from jupyter_exec_ext.engine.kernels.shared_resources import EngineResources
from jupyter_exec_ext.errors import KernelStartFailed
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage
from jupyter_exec_ext.protocol.zmtp_frames import encode_message
from tests.support.hostile_peer import HostilePeer, hostile_peer
from tests.support.waiting import until

MIB = 1024 * 1024
LARGE = "x" * 400_000  # which is read in a worker thread


class Listener:
    """A connection, and what it has reported."""

    def __init__(self, info: dict[str, Any], max_message_bytes: int = 128 * MIB) -> None:
        self.resources = EngineResources(MIB, log=logging.getLogger("kernels"), max_message_bytes=max_message_bytes)
        self.messages: asyncio.Queue[KernelMessage] = asyncio.Queue()
        self.too_large: asyncio.Queue[str] = asyncio.Queue()
        self.connection = KernelConnection(
            self.resources, info, self.messages.put_nowait, on_too_large=self.too_large.put_nowait
        )

    async def next(self, msg_type: str) -> KernelMessage:
        """Return the next message of a type, leaving out the others."""
        while True:
            message = await asyncio.wait_for(self.messages.get(), 30)
            if message.msg_type == msg_type:
                return message

    def close(self) -> None:
        self.connection.close()
        self.resources.close()


@pytest.fixture
async def peer(short_path: Path) -> AsyncIterator[HostilePeer]:
    async with hostile_peer(short_path) as peer:
        yield peer


@pytest.fixture
async def listener(peer: HostilePeer) -> AsyncIterator[Listener]:
    listener = Listener(peer.info, max_message_bytes=4 * MIB)
    yield listener
    listener.close()


NESTED = b"[" * 5000 + b"]" * 5000
IMPROPER_HEADERS: list[tuple[Any, Any]] = [
    ("stream", {"msg_id": []}),
    ("stream", {"msg_id": {}}),
    ("stream", {"msg_id": 5}),
    ("stream", {"msg_id": "i" * 1000}),
    ("stream", {"msg_id": "x", "msg_type": []}),
    ("stream", {"msg_id": "x", "msg_type": "t" * 1000}),
    ("stream", []),
    ("stream", "parent"),
    ([], {"msg_id": "x"}),
    ({}, {"msg_id": "x"}),
    (None, {"msg_id": "x"}),
    (7, {"msg_id": "x"}),
    ("t" * 1000, {"msg_id": "x"}),
]
IMPROPER_CONTENTS = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"text"',
    b"\xff\xfe",
    NESTED,
    b'{"text":' + NESTED + b"}",
    b'{"data":{"text/plain":' + NESTED + b"}}",
    b'{"execution_count":' + b"9" * 5000 + b"}",
    b'{"data":[],"metadata":7,"transient":"x"}',
]


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("number", range(len(IMPROPER_HEADERS)))
async def test_channel_goes_on_after_an_improper_header(
    peer: HostilePeer, listener: Listener, number: int, size: str
) -> None:
    msg_type, parent = IMPROPER_HEADERS[number]
    await peer.send("iopub", msg_type, {"name": "stdout", "text": LARGE if size == "large" else "x"}, parent)
    await peer.send("iopub", "last", {})
    assert (await listener.next("last")).msg_type == "last"
    assert not listener.connection.reading


@pytest.mark.parametrize("size", [300_000, 600_000, 1_000_000, 1_100_000])
@pytest.mark.parametrize("channel", ["iopub", "shell"])
async def test_channel_goes_on_after_a_large_header(
    peer: HostilePeer, listener: Listener, channel: str, size: int
) -> None:
    await peer.send(channel, "stream", {"name": "stdout", "text": "x"}, {"msg_id": "x"}, padding="y" * size)
    await peer.send(channel, "last", {})
    assert (await listener.next("last")).channel == channel
    assert not listener.connection.reading


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("number", range(len(IMPROPER_CONTENTS)))
@pytest.mark.parametrize("msg_type", ["stream", "display_data", "error", "execute_reply", "status", "comm_msg"])
async def test_channel_goes_on_after_an_improper_content(
    peer: HostilePeer, listener: Listener, msg_type: str, number: int, size: str
) -> None:
    content = IMPROPER_CONTENTS[number]
    if size == "large":
        content = b'{"padding":"' + LARGE.encode() + b'","inner":' + content + b"}"
    await peer.send("iopub", msg_type, content, {"msg_id": "x"})
    await peer.send("iopub", "last", {})
    found = await listener.next("last")
    assert found.content == {}
    assert not listener.connection.reading


@pytest.mark.parametrize("channel", ["shell", "control", "stdin", "iopub"])
async def test_oversized_message_is_reported_and_the_next_one_read_on_every_channel(
    peer: HostilePeer, listener: Listener, channel: str
) -> None:
    await peer.send(channel, "stream", {"text": "x" * 5 * MIB}, {"msg_id": "x"})
    assert "4,194,304 bytes (max_message_bytes)" in await asyncio.wait_for(listener.too_large.get(), 30)
    await peer.send(channel, "last", {})
    assert (await listener.next("last")).channel == channel


async def test_announced_size_alone_takes_no_memory(peer: HostilePeer, listener: Listener) -> None:
    head = encode_message([*peer.frames("stream", {})[:6], b""])[:-2]
    for channel in ("shell", "control", "stdin", "iopub"):
        await peer.send_bytes(channel, head + b"\x02" + struct.pack(">Q", 4 * MIB - 10_000))
    await peer.send_bytes("iopub", bytes(1000))
    await until(lambda: listener.resources.message_memory.used_bytes)
    assert listener.resources.message_memory.used_bytes <= 1000


async def test_messages_of_one_kernel_share_its_bound(peer: HostilePeer, listener: Listener) -> None:
    head = encode_message([*peer.frames("stream", {})[:6], b""])[:-2]
    for channel in ("shell", "control", "stdin", "iopub"):
        await peer.send_bytes(channel, head + b"\x02" + struct.pack(">Q", 2 * MIB) + bytes(2 * MIB - 1))
    await asyncio.wait_for(listener.too_large.get(), 30)
    await asyncio.wait_for(listener.too_large.get(), 30)
    assert listener.resources.message_memory.used_bytes <= 4 * MIB


async def test_messages_of_all_kernels_share_a_bound_and_the_largest_gives_way(short_path: Path) -> None:
    resources = EngineResources(MIB, max_message_bytes=4 * MIB, max_all_messages_bytes=8 * MIB)
    given_up: list[int] = []
    async with (
        hostile_peer(_made(short_path / "0")) as first,
        hostile_peer(_made(short_path / "1")) as second,
        hostile_peer(_made(short_path / "2")) as third,
    ):
        peers = (first, second, third)
        connections = []
        for number, peer in enumerate(peers):
            give_up = partial(_note, given_up, number)
            connections.append(KernelConnection(resources, peer.info, lambda _: None, on_too_large=give_up))
        for peer, size in zip(peers, (35, 39, 20), strict=True):
            head = encode_message([*peer.frames("stream", {})[:6], b""])[:-2]
            await peer.send_bytes("iopub", head + b"\x02" + struct.pack(">Q", 4 * MIB - 5000) + bytes(size * MIB // 10))
        await until(lambda: given_up)
        assert given_up == [1], "who has the largest"
        assert resources.message_memory.used_bytes <= 8 * MIB
        for connection in connections:
            connection.close()
        assert resources.message_memory.used_bytes == 0
    resources.close()


def _note(given_up: list[int], number: int, reason: str) -> None:
    given_up.append(number)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


async def test_a_flood_of_improper_messages_makes_two_lines_in_the_log(
    peer: HostilePeer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    improper = encode_message(peer.frames("stream", {}, {"msg_id": []}))
    for _ in range(50):
        await peer.send_bytes("iopub", improper * 100)
    await peer.send("iopub", "last", {})
    await listener.next("last")
    listener.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "kernels"]
    assert len(lines) == 2
    assert "malformed 'msg_id'" in lines[0]
    assert lines[1] == "improper messages on iopub: 4999 more"
    assert not any(record.exc_info for record in caplog.records)


async def test_a_reader_that_fails_is_logged_once_with_its_traceback(
    peer: HostilePeer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: KernelMessage) -> None:
        raise RuntimeError("a defect of ours")

    resources = EngineResources(MIB, log=logging.getLogger("kernels"))
    connection = KernelConnection(resources, peer.info, fail)
    for text in ("x", LARGE) * 20:
        await peer.send("iopub", "stream", {"text": text})
    await peer.send("control", "x", {}, {"msg_id": connection.send("control", "kernel_info_request", {})})
    await until(lambda: caplog.records and not connection.reading)
    connection.close()
    resources.close()
    assert sum(bool(record.exc_info) for record in caplog.records) <= 2  # one for each channel


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n" * 9, bytes(100), b"\xff" * 100], ids=range(3))
async def test_what_does_not_speak_the_protocol_is_connected_to_again_and_logged_once(
    short_path: Path, greeting: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    peer = HostilePeer(short_path)
    await peer.listen(greeting)
    listener = Listener(peer.info)
    await until(lambda: min(peer.connections.values()) >= 3)
    listener.close()
    await peer.close()
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("zmtp_channel")]
    # One for each channel; which number of these came depends on how far each got.
    assert 1 <= len(lines) == len(set(lines)) <= 4
    assert all("the kernel's socket " in line for line in lines)


async def test_a_connection_that_is_lost_is_made_anew(peer: HostilePeer, listener: Listener) -> None:
    await peer.send("iopub", "first", {})
    await listener.next("first")
    await peer.hang_up("iopub")
    await peer.send("iopub", "second", {})
    await listener.next("second")
    assert peer.connections["iopub"] == 2


async def test_what_was_sent_before_the_end_of_a_connection_is_read(peer: HostilePeer, listener: Listener) -> None:
    for number in range(500):
        await peer.send("iopub", "stream", {"text": "x" * 2000, "number": number})
    await peer.hang_up("iopub")
    for number in range(500):
        assert (await listener.next("stream")).content["number"] == number


@pytest.mark.parametrize("kind", ["link", "file", "directory", "fifo"])
async def test_nothing_but_a_socket_is_connected_to(short_path: Path, kind: str) -> None:
    other = HostilePeer(short_path)
    await other.listen()
    (short_path / "mine").mkdir()
    for number in range(1, 5):
        place = short_path / "mine" / f"s-{number}"
        if kind == "link":
            place.symlink_to(short_path / f"s-{number}")
        elif kind == "file":
            place.write_text("x")
        elif kind == "directory":
            place.mkdir()
        else:
            os.mkfifo(place)
    resources = EngineResources(MIB)
    with pytest.raises(KernelStartFailed, match="is no socket"):
        KernelConnection(resources, {**other.info, "ip": str(short_path / "mine" / "s")}, lambda _: None)
    resources.close()
    await other.close()
    assert sum(other.connections.values()) == 0


async def test_json_with_millions_of_items_is_left_out_unparsed(peer: HostilePeer, listener: Listener) -> None:
    data = json.dumps({"data": {"application/json": [[]] * 500_000, "text/plain": "x"}}).encode()
    await peer.send("iopub", "display_data", data, {"msg_id": "x"})
    content = (await listener.next("display_data")).content
    assert list(content["data"]) == ["application/json"]
    left_out = content["data"]["application/json"]
    assert left_out.size_bytes == len(data)
    assert "".join(left_out.pieces).encode() == data
