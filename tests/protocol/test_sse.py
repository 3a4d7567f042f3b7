from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.errors import UnexpectedAnswer
from jupyter_exec_ext.protocol.sse import KEEP_ALIVE, EventStreamDecoder, ServerSentEvent, encode_event


def decode(*chunks: bytes) -> list[ServerSentEvent]:
    decoder = EventStreamDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_an_event_survives_the_trip() -> None:
    assert decode(b"".join(encode_event(7, "stream", '{"text":"ü\u2028"}'.encode()))) == [
        ServerSentEvent("7", "stream", '{"text":"ü\u2028"}')
    ]


def test_comments_are_no_events() -> None:
    assert decode(KEEP_ALIVE, *encode_event(1, "a", b"x"), KEEP_ALIVE) == [ServerSentEvent("1", "a", "x")]


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n"), max_size=30), max_size=10), st.data())
def test_events_may_be_cut_anywhere(texts: list[str], data: st.DataObject) -> None:
    stream = b"".join(
        part for i, text in enumerate(texts) for part in encode_event(i, "t", f"-{text}".encode("utf-8", "replace"))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decode(*chunks) == decode(stream)
    assert [event.id for event in decode(*chunks)] == [str(i) for i in range(len(texts))]


def test_an_event_without_end_does_not_fill_the_memory() -> None:
    decoder = EventStreamDecoder(max_event_bytes=1000)
    for _ in range(9):
        assert list(decoder.feed(b"data: " + b"x" * 100)) == []
    with pytest.raises(UnexpectedAnswer, match="1000"):
        list(decoder.feed(b"data: " + b"x" * 100))
