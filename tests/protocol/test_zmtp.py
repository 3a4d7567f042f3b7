"""Reading ZMTP: everything that libzmq sends, and nothing that a hostile peer makes grow."""

from __future__ import annotations

import socket
import struct

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.protocol.kernel_messages import DELIMITER
from jupyter_exec_ext.protocol.zmtp import (
    LARGE_BYTES,
    FrameBuffer,
    MessageReader,
    ProtocolError,
    RawMessage,
    SkippedMessage,
    Unfinished,
)
from jupyter_exec_ext.protocol.zmtp_frames import encode_message, opening, subscription

MAX_BYTES = 4 * 1024 * 1024


class Reader(MessageReader):
    """A reader after its handshake that counts the memory it has reserved."""

    def __init__(self, *, room: int = 1 << 40, handshake: bool = True) -> None:
        self.reserved = 0
        self.room = room
        super().__init__(MAX_BYTES, self._count_more, self._count_less)
        if handshake:
            self.feed(opening("PUB"))
            assert self.next() is None and self.ready

    def _count_more(self, size: int) -> bool:
        if self.reserved + size > self.room:
            return False
        self.reserved += size
        return True

    def _count_less(self, size: int) -> None:
        self.reserved -= size

    def read(self, data: bytes, step: int) -> list[RawMessage | SkippedMessage]:
        """Return the messages in `data`, which comes in parts of `step` bytes."""
        found = []
        for start in range(0, len(data), step):
            self.feed(data[start : start + step])
            while (message := self.next()) is not None:
                if not isinstance(message, Unfinished):
                    found.append(message)
        return found


def jupyter_frames(content: bytes, *buffers: bytes, topics: int = 1) -> list[bytes]:
    return [b"topic"] * topics + [DELIMITER, b"signature", b"{}", b"{}", b"{}", content, *buffers]


@pytest.mark.parametrize("step", [1, 7, 64, 1000, 1 << 20])
def test_messages_are_the_same_however_their_bytes_come(step: int) -> None:
    sent = [jupyter_frames(b"a"), jupyter_frames(b"", topics=0), jupyter_frames(b"x" * 700, b"buffer", b""), []]
    sent[3] = jupyter_frames(b"y" * (LARGE_BYTES + 1), b"z" * 300) if step > 1 else jupyter_frames(b"y" * 3000)
    found = Reader().read(b"".join(map(encode_message, sent)), step)
    assert [[*m.head, bytes(m.content)] for m in found if isinstance(m, RawMessage)] == [
        frames[: frames.index(DELIMITER) + 6] for frames in sent
    ]


@given(st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=8), max_size=8), st.integers(1, 700))
def test_any_messages_are_read_or_reported_one_for_one(messages: list[list[bytes]], step: int) -> None:
    found = Reader().read(b"".join(map(encode_message, messages)), step)
    assert len(found) == len(messages)


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_any_bytes_are_read_or_refused(data: bytes, step: int) -> None:
    reader = Reader(room=MAX_BYTES, handshake=False)
    try:
        reader.read(data, step)
    except ProtocolError:
        return
    assert reader.buffered_bytes <= len(data)


def test_a_libzmq_publisher_and_router_are_understood() -> None:
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher, context.socket(zmq.ROUTER) as router:
        ports = [s.bind_to_random_port("tcp://127.0.0.1") for s in (publisher, router)]
        with socket.create_connection(("127.0.0.1", ports[0])) as subscribed:
            reader = Reader(handshake=False)
            subscribed.sendall(opening("SUB"))
            while not reader.ready:
                reader.feed(subscribed.recv(1000))
                reader.next()
            subscribed.sendall(subscription())
            found = None
            subscribed.settimeout(0.05)
            while found is None:
                publisher.send_multipart(jupyter_frames(b"hello"))
                try:
                    reader.feed(subscribed.recv(1000))
                except TimeoutError:
                    continue
                found = reader.next()
            assert isinstance(found, RawMessage) and found.content == b"hello"
        with socket.create_connection(("127.0.0.1", ports[1])) as dealer:
            reader = Reader(handshake=False)
            dealer.sendall(opening("DEALER", b"me"))
            while not reader.ready:
                reader.feed(dealer.recv(1000))
                reader.next()
            dealer.sendall(encode_message([b"one", b"x" * 300]))
            assert router.recv_multipart() == [b"me", b"one", b"x" * 300]
            router.send_multipart([b"me", *jupyter_frames(b"reply", topics=0)])
            reply = None
            while reply is None:
                reader.feed(dealer.recv(1000))
                reply = reader.next()
            assert isinstance(reply, RawMessage) and reply.content == b"reply"


def long_frame(size: int, *, more: bool = False) -> bytes:
    return bytes((2 | more,)) + struct.pack(">Q", size)


HEAD = encode_message(jupyter_frames(b""))[:-2].replace(b"\x00\x02{}", b"\x01\x02{}")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEAD + long_frame(5 << 30), "bytes"),
        (HEAD + long_frame(2**64 - 1), "bytes"),
        (long_frame(5 << 30, more=True), "bytes"),
        (HEAD + b"\x01\x00" + long_frame(5 << 30), "bytes"),
        (HEAD + b"\x01\x00" * 5000, "frames"),
        (b"\x01\x05topic" * 5000, "delimiter"),
        (b"\x01\x09" + DELIMITER + long_frame(2 << 20, more=True), "before its content"),
        (b"".join(long_frame(300_000, more=True) + bytes(300_000) for _ in range(8)), "before its content"),
        (
            (HEAD + long_frame(300_000, more=True) + bytes(300_000))
            + (long_frame(1 << 20, more=True) + bytes(1 << 20)) * 5,
            "bytes",
        ),
        (b"\x00\x00", "delimiter"),
        (encode_message([b"no delimiter", b"{}"]), "delimiter"),
    ],
    ids=range(11),
)
def test_what_exceeds_a_bound_is_reported_once_and_skipped(data: bytes, reason: str) -> None:
    reader = Reader()
    found = reader.read(data, 65536)
    assert [type(message) for message in found] == [SkippedMessage]
    assert isinstance(found[0], SkippedMessage) and reason in found[0].reason
    assert reader.reserved == 0
    assert reader.buffered_bytes < 65536


def test_the_message_after_a_skipped_one_is_read() -> None:
    skipped = encode_message(jupyter_frames(bytes(MAX_BYTES + 1), b"buffer"))
    found = Reader().read(skipped + encode_message(jupyter_frames(b"next")), 100_000)
    assert [type(message) for message in found] == [SkippedMessage, RawMessage]
    assert isinstance(found[1], RawMessage) and found[1].content == b"next"


def test_an_endless_message_takes_no_memory() -> None:
    """libzmq keeps every frame until the last one comes, whatever its limits."""
    reader = Reader()
    reader.feed(HEAD + b"\x01\x00")
    most = 0
    for _ in range(2000):
        reader.feed(long_frame(100_000, more=True) + bytes(100_000))
        while reader.next() is not None:
            pass
        most = max(most, reader.reserved + reader.buffered_bytes)
    assert most < 200_000


def test_memory_is_reserved_as_it_arrives_and_given_back_with_the_message() -> None:
    reader = Reader()
    reader.read(HEAD + long_frame(3_000_000) + bytes(1_000_000), 50_000)
    assert reader.reserved == reader.partial_bytes == 1_000_000
    reader.feed(bytes(2_000_000))
    message = reader.next()
    assert isinstance(message, RawMessage) and isinstance(message.content, FrameBuffer)
    assert (reader.reserved, reader.partial_bytes) == (3_000_000, 0)
    del message
    assert reader.reserved == 0


def test_a_message_waits_for_memory_and_goes_on() -> None:
    reader = Reader(room=500_000)
    assert reader.read(HEAD + long_frame(600_000) + bytes(600_000), 100_000) == []
    assert reader.waits_for_memory
    reader.room = 1_000_000
    message = reader.next()
    assert isinstance(message, RawMessage) and len(message.content) == 600_000
    assert not reader.waits_for_memory


def test_a_message_that_is_given_up_is_left_out_with_its_memory() -> None:
    reader = Reader()
    reader.read(HEAD + long_frame(600_000) + bytes(400_000), 100_000)
    reader.skip()
    assert reader.reserved == 0
    found = reader.read(bytes(200_000) + encode_message(jupyter_frames(b"next")), 100_000)
    assert [message.content for message in found if isinstance(message, RawMessage)] == [b"next"]


@pytest.mark.parametrize("frame", [b"\x01\x00", b"\x04\x00"], ids=["empty frames", "empty commands"])
def test_many_small_frames_are_read_in_parts(frame: bytes) -> None:
    reader = Reader()
    reader.feed(frame * 30_000)
    calls = 0
    while reader.next() is not None:
        calls += 1
    assert calls >= 30_000 // 512
    assert reader.buffered_bytes < 2


GREETING = opening("PUB")[:64]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HTTP/1.1 200 OK\r\n".ljust(64, b"\n"), "the kernel's socket does not speak ZMTP 3"),
        (bytes(64), "does not speak ZMTP 3"),
        (GREETING[:10] + b"\x02" + GREETING[11:], "does not speak ZMTP 3"),
        (
            GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:],
            "the kernel's socket demands the security mechanism 'CURVE'; only NULL is supported",
        ),
        (GREETING[:12] + b"\n\xff".ljust(20, b"\0") + GREETING[32:], r"mechanism '\\n\ufffd'; only"),
        (GREETING + b"\x00\x05hello", "a message before its command READY"),
        (GREETING + b"\x04\x0c\x05ERROR\x05sorry", "the kernel's socket refuses the connection: 'sorry'"),
        (GREETING + b"\x06" + struct.pack(">Q", 1 << 40), "a command of 1,099,511,627,776 bytes; at most 65,536"),
        (opening("PUB") + b"\x06" + struct.pack(">Q", 1 << 40), "a command of 1,099,511,627,776 bytes"),
    ],
    ids=range(9),
)
def test_what_is_no_peer_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        Reader(handshake=False).read(data, 1000)
