"""The user pages keep the rules for plain English, and the check finds what breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import prose
from tests.docs.prose import findings, parse_prose, split_sentences, user_pages


@pytest.mark.parametrize("page", user_pages())
def test_a_user_page_has_plain_english(page: str) -> None:
    assert list(findings(page)) == []


def test_code_comments_and_markup_are_no_prose() -> None:
    text = "# A *head*\n\n<!-- a\nnote -->\nUse `a b c` and [the page](x.md).\n\n```sh\nmore words here\n```\n\n"
    parsed = parse_prose(text + "| a b | c |\n|---|---|\n| d | `e f` |\n\n- one\n  item\n- two\n")
    assert parsed.paragraphs == ["Use Code and the page."]
    assert parsed.cells == ["a b", "c", "d", "Code"]
    assert parsed.items == ["one item", "two"]
    assert parsed.headings == ["A head"]
    assert parsed.words == 5 + 5 + 3 + 2


def test_sentences_end_at_a_full_stop_before_a_capital() -> None:
    assert split_sentences("It costs 0.5 s. Then, e.g. here, it ends. (So it is.) Is it? Yes") == [
        "It costs 0.5 s.",
        "Then, e.g. here, it ends.",
        "(So it is.",
        "Is it?",
        "Yes",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What the code prints is kept.", "relative clause"),
        ("- Whether it runs depends on it.", "relative clause"),
        ("| a | Who has the token may enter. |", "relative clause"),
        ("Then nobody reads it.", "a person"),
        ("It is not here, not there, nor elsewhere.", "negations"),
        ("The server heeds it.", "old-fashioned"),
        ("word " * 901, "make two pages"),
        (f"A{' word' * 17}. " * 8, "split the longest"),
    ],
)
def test_a_page_that_breaks_a_rule_is_found(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text)
    found = list(findings("page.md"))
    assert len(found) == 1 and words in found[0]


@pytest.mark.parametrize(
    "text", ["What is it?", "It says what it is.", "Somewhat. It is not here, nor there.", "`What`"]
)
def test_a_page_in_plain_english_has_no_finding(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text)
    assert list(findings("page.md")) == []
