"""Parsing in pieces: the same as parsing at once, wherever the pieces end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_exec_ext.protocol import large_json_parser
from jupyter_exec_ext.protocol.large_json_parser import KeepUpTo, LeftOut, loads_in_pieces
from jupyter_exec_ext.protocol.strict_json import loads_lenient, utf8_size

NASTY = st.text(st.sampled_from('\\\\\\"\n\t\x00aé\u2028😀\ud83d\ude00 u0'), max_size=60)
TEXT = st.text(max_size=60) | NASTY
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def bytes_of(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture(scope="module", autouse=True)
def _small_windows() -> Iterator[None]:
    """Cut everywhere: as if 64 characters were many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_json_parser, "PIECE_BYTES", 17)
        patch.setattr(large_json_parser, "_SHORT_BYTES", 3)
        patch.setattr(large_json_parser, "_FIRST_WINDOW_BYTES", 16)
        yield


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
@example("\\" * 50, True, None)
@example('\\"' * 40, True, None)
@example("😀" * 20, True, None)
@example("a😀" * 20, True, None)
@example("aa\ud83d😀" * 20, True, None)
@example({"k" * 30: {"k" * 31: "v" * 32}}, False, None)
def test_any_json_is_parsed_as_at_once(value: Any, ascii_only: bool, indent: int | None) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert loads_in_pieces(raw) == loads_lenient(raw)
    assert loads_in_pieces(bytearray(raw)) == loads_lenient(raw)
    assert loads_in_pieces(raw, KeepUpTo(len(raw))) == loads_lenient(raw)


@given(st.binary(max_size=80) | NASTY.map(lambda text: f'"{text}"'.encode("utf-8", "surrogatepass")))
@example(b'"' + b"a" * 30 + b'\n"')
@example('"aaaaaaaaaaaaaaaaaaaaaaaaä"'.encode("latin-1"))
def test_any_bytes_are_refused_or_parsed_as_at_once(raw: bytes) -> None:
    try:
        expected = loads_lenient(raw)
    except ValueError:
        with pytest.raises(ValueError, match=r".*"):
            loads_in_pieces(raw)
        with pytest.raises(ValueError, match=r".*"):
            loads_in_pieces(raw, KeepUpTo(len(raw)))
    else:
        assert loads_in_pieces(raw) == loads_in_pieces(raw, KeepUpTo(len(raw))) == expected


@given(TEXT, st.integers(0, 80))
def test_what_is_left_out_is_counted_exactly(text: str, max_bytes: int) -> None:
    text += "long enough"
    raw = json.dumps([text, 1]).encode()
    text = json.loads(raw)[0]  # surrogates that happened to be a pair are one character now
    size = utf8_size(text)
    found = loads_in_pieces(raw, KeepUpTo(max_bytes))
    assert found == [text if size <= max_bytes else LeftOut(size), 1]


@given(TEXT)
def test_pieces_are_short_and_join_to_the_whole(text: str) -> None:
    text += "long enough"
    raw = json.dumps([text]).encode()
    (found,) = loads_in_pieces(raw, tuple)
    assert ["".join(found)] == json.loads(raw)
    assert max(map(len, found)) <= 17
