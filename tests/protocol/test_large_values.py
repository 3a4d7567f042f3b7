"""Writing in pieces: the same text as writing at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models import EndEvent, Execution, ExecutionState, StreamEvent
from jupyter_exec_ext.protocol import large_values
from jupyter_exec_ext.protocol.large_values import collect, dump_in_pieces, encode_in_pieces, event_is_large, is_large
from jupyter_exec_ext.protocol.strict_json import dump_bytes, dumps

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@pytest.fixture(scope="module", autouse=True)
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_values, "_SHORT_CHARACTERS", 2)
        patch.setattr(large_values, "_PIECE_CHARACTERS", 3)
        patch.setattr(large_values, "_BATCH", 2)
        yield


@given(VALUES | st.text(st.sampled_from('\ud83d\ude00é\n"\\'), max_size=20))
def test_the_pieces_are_the_whole(value: Any) -> None:
    assert "".join(dump_in_pieces(value)) == dumps(value)
    assert b"".join(collect(encode_in_pieces(value))) == dump_bytes(value)


def test_what_is_large_is_seen_wherever_it_is() -> None:
    many = "x" * 300_000
    record = Execution("exe_1", "ses_1", ExecutionState.OK, "1", "t")
    for value in (many, [many], {"a": [{"b": many}]}, list(range(100_000)), ["a"] * 40_000):
        assert is_large(value)
    assert not is_large({"a": ["x" * 1000] * 10})
    assert event_is_large(StreamEvent("stdout", many))
    assert event_is_large(EndEvent(Execution("exe_1", "ses_1", ExecutionState.OK, "1", "t", stdout=many)))
    assert not event_is_large(EndEvent(record))


@pytest.mark.parametrize("odd", ["", '"', "\\", "\n", "\x00", "\x1f", "\x7f", "ä", "\ud800", "\U0001f600"])
def test_a_long_text_is_escaped_wherever_it_must_be(odd: str) -> None:
    for text in (odd + "x" * 5000, "x" * 5000 + odd, "x" * 5000 + odd + "x"):
        assert "".join(dump_in_pieces(text)) == dumps(text)
