"""The pool's status page; `test_pool` has the dialog of browsers on a real one."""

from __future__ import annotations

import base64

import pytest

from jupyter_exec_ext.fleet.status_page import status_page, token_from_basic_login


def test_figures_and_problems_are_text_and_never_markup() -> None:
    figures = {"servers": {"ready": 2, "lost": 1}, "free_places": 3, "trouble": None}
    text = status_page(figures, [{"name": "w1", "state": "lost", "problem": "<script>"}]).text
    assert text is not None
    assert "<th>servers</th><td>2 ready, 1 lost</td>" in text
    assert "<th>free places</th><td>3</td>" in text and "<th>trouble</th><td>none</td>" in text
    assert "<td>w1</td><td>lost</td><td>&lt;script&gt;</td>" in text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Bearer abc", "Bearer abc"),
        (f"Basic {base64.b64encode(b'any:a:b').decode()}", "Bearer a:b"),
        ("Basic !", ""),
        ("Basic /w==", ""),
    ],
)
def test_token_is_the_password_of_the_dialog(given: str, expected: str) -> None:
    assert token_from_basic_login(given) == expected
