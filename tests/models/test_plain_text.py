"""Text for models: as a terminal would show it, and valid Unicode."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models.plain_text import TextCleaner, as_terminal_shows, keep_colours, strip_ansi

BAR = "".join(f"\r{n:3}%|{'#' * (n // 2)}" for n in range(101))
NESTED = "".join(f"\router {n}\n\rinner {n}\x1b[A" for n in range(5)) + "\n\n"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mFAILED\x1b[0m test_a\n", "FAILED test_a\n"),
        ("\x1b[38;2;1;2;3mx\x1b[m\x1b(B", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07!", "link!"),
        ("\x1b]0;title\x07a\x1bPdcs\x1b\\b\x1b7\x1b8\x1bc\x1b=c", "abc"),
        ("\x1b]never ended\nnext line", "\nnext line"),
        ("\x1b[?25l\x1b[2J\x1b[Ha\x1b[?25h", "a"),
        ("a\x1b", "a"),
        ("a\x1b[31", "a31"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b[2K\x1b[1Gdone\n", "done\n"),
        (BAR + "\n", "100%|" + "#" * 50 + "\n"),
        (NESTED, "outer 4\ninner 4\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("one\r\r\ntwo", "one\ntwo"),
        ("loading...\rdone", "doneing..."),
        ("loading...\r\x1b[Kdone", "done"),
        ("12345\x08\x08ab", "123ab"),
        ("\x08\x08a", "a"),
        ("abc\x1b[2Dxy", "axy"),
        ("a\x1b[3Cb", "a   b"),
        ("ab\x1b[5Gc", "ab  c"),
        ("abc\x1b[1Kd", "   d"),
        ("50%\r   \r", ""),
        ("first\nsecond\x1b[1F1st", "1stst\nsecond"),
        ("a\nb\x1b[9Ac", "ac\nb"),
        ("a\x07\x00\x7fb", "ab"),
        ("plain \t text\n", "plain \t text\n"),
        ("ü\rö", "ö"),
    ],
)
def test_text_is_as_a_terminal_shows_it(written: str, shown: str) -> None:
    assert as_terminal_shows(written) == shown


def test_all_of_it_stays_where_it_is_kept() -> None:
    text = "\x1b[31ma\x1b[0m\rb\x08\n"
    assert TextCleaner("keep").clean(text) == text
    assert TextCleaner().clean(text) == "b\n"
    with pytest.raises(ValueError, match="'remove' or 'keep'"):
        TextCleaner("colours")  # type: ignore[arg-type]


@pytest.mark.parametrize("ansi", ["remove", "keep"])
@pytest.mark.parametrize(
    ("written", "shown", "replaced"),
    [
        ("caf\udce9.txt", "caf\ufffd.txt", 1),
        ("\ud835", "\ufffd", 1),
        ("\udc00\ud800", "\ufffd\ufffd", 2),
        ("a\ud83d" * 1234, "a\ufffd" * 1234, 1234),
        ("😀é\ufffe", "😀é\ufffe", 0),
    ],
)
def test_what_cannot_be_encoded_is_replaced_and_counted(ansi: str, written: str, shown: str, replaced: int) -> None:
    cleaner = TextCleaner(ansi)  # type: ignore[arg-type]
    assert cleaner.clean(written) == shown
    json.dumps(shown, ensure_ascii=False).encode("utf-8")
    are = "character that is" if replaced == 1 else "characters that are"
    assert cleaner.note == (f"Replaced: {replaced:,} {are} not valid Unicode" if replaced else "")


@given(st.text(st.sampled_from("ab \n\r\x08\x1b\x9b[]()0;12KAGmPX^_\\\x07\x00é\ud800")))
def test_no_text_has_escape_sequences_afterwards(text: str) -> None:
    shown = TextCleaner().clean(text)
    shown.encode()
    assert "\x1b" not in shown and "\r" not in shown and "\x08" not in shown
    assert TextCleaner().clean(shown.replace("\x9b", "")) == shown.replace("\x9b", "")
    assert "\x1b" not in strip_ansi(text)


@given(st.text(st.sampled_from("ab \n\r\x08\x1b\x9b[]()0;1mKAGPX^_\\\x07\x00é\x85")))
def test_nothing_but_colours_is_left_beside_text(text: str) -> None:
    kept = keep_colours(text)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", kept)
    assert all(character.isprintable() or character == "\n" for character in plain)
    assert keep_colours(kept) == kept


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000 + "\r" + "y" * 10,
        "\r\x08" * 200_000,
        "\x1b[31mred\x1b[0m " * 200_000,
        "a\x1b[A\n" * 60_000,
        "\x1b[" * 300_000,
        "\x1b]" * 300_000,
        ("x" * 200 + "\x08") * 10_000,
        ("x" * 100_000 + "\n") * 10 + "\r\x1b[1K" * 100_000,
    ],
)
def test_its_time_grows_with_the_length(text: str) -> None:
    began = time.process_time()
    as_terminal_shows(text)
    assert time.process_time() - began < 3
