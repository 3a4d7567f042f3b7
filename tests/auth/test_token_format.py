from __future__ import annotations

import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.auth.token_format import NO_HASH, TokenText, matches_any, new_token, parse_token

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
TOKEN = re.compile(r"jex_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")


def crc32_in_base62(text: str) -> str:
    """The check, worked out another way than ours."""
    number = zlib.crc32(text.encode())
    return "".join(BASE62[number // 62**place % 62] for place in range(5, -1, -1))


def test_a_token_has_the_documented_form() -> None:
    token = new_token()
    match = TOKEN.fullmatch(token.text)
    assert match is not None
    assert (match[1], match[2]) == (token.id, token.secret)
    assert match[3] == crc32_in_base62(token.text[:-6])
    assert len(token.text) == 62


def test_tokens_are_all_different_and_use_the_whole_alphabet() -> None:
    tokens = [new_token() for _ in range(500)]
    assert len({token.id for token in tokens}) == len({token.secret for token in tokens}) == 500
    assert set("".join(token.secret for token in tokens)) == set(BASE62)
    assert 62**43 >= 2**256


def test_a_new_secret_keeps_the_id() -> None:
    token = new_token("abcd1234")
    assert token.id == "abcd1234"
    assert parse_token(token.text) == token


def test_a_token_does_not_show_its_secret() -> None:
    token = new_token()
    for shown in (repr(token), str(token), f"{token}", repr([token]), repr({"token": token})):
        assert token.secret not in shown
        assert token.id in shown


@given(st.text(BASE62, min_size=8, max_size=8), st.text(BASE62, min_size=43, max_size=43))
def test_what_was_made_is_read_again(token_id: str, secret: str) -> None:
    token = TokenText(token_id, secret)
    assert parse_token(token.text) == token


@given(st.text(max_size=100))
def test_nothing_else_is_a_token(text: str) -> None:
    assert parse_token(text) is None


@given(st.text(BASE62, min_size=8, max_size=8), st.text(BASE62, min_size=43, max_size=43), st.data())
def test_one_wrong_character_is_noticed(token_id: str, secret: str, data: st.DataObject) -> None:
    text = TokenText(token_id, secret).text
    place = data.draw(st.integers(0, len(text) - 1))
    wrong = data.draw(st.characters().filter(lambda c: c != text[place]))
    assert parse_token(text[:place] + wrong + text[place + 1 :]) is None


@given(st.text(BASE62, min_size=8, max_size=8), st.text(BASE62, min_size=43, max_size=43), st.text(min_size=1))
def test_nothing_may_stand_around_it(token_id: str, secret: str, more: str) -> None:
    text = TokenText(token_id, secret).text
    assert parse_token(text + more) is None
    assert parse_token(more + text) is None


@pytest.mark.parametrize("lengths", [(7, 43), (9, 43), (8, 42), (8, 44), (0, 43), (8, 0)])
def test_the_lengths_are_fixed(lengths: tuple[int, int]) -> None:
    body = f"jex_{'a' * lengths[0]}_{'b' * lengths[1]}"
    assert parse_token(body + crc32_in_base62(body)) is None


@pytest.mark.parametrize("prefix", ["JEX_", "jex-", "jex", "ghp_", ""])
def test_the_prefix_is_fixed(prefix: str) -> None:
    body = f"{prefix}{'a' * 8}_{'b' * 43}"
    assert parse_token(body + crc32_in_base62(body)) is None


@pytest.mark.parametrize("digit", ["\u0663", "\uff13", "é", "ß", "\n", "\x00", "-"])
def test_letters_and_digits_are_those_of_ascii(digit: str) -> None:
    body = f"jex_{'a' * 8}_{'b' * 42}{digit}"
    assert parse_token(body + crc32_in_base62(body)) is None


def test_a_secret_is_compared_with_all_that_are_kept() -> None:
    token, other = new_token(), new_token()
    assert matches_any(token.secret_hash, [NO_HASH, token.secret_hash])
    assert matches_any(token.secret_hash, [token.secret_hash, NO_HASH])
    assert not matches_any(token.secret_hash, [other.secret_hash, NO_HASH])
    assert not matches_any(token.secret_hash, [])
    assert token.secret_hash != NO_HASH
    assert len(token.secret_hash) == 32
