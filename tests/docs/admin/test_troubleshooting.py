"""Every message on the page is one that the package's code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.admin import page
from tests.docs.blocks import ROOT

ROWS = re.findall(r"^\| `(.+?)` \| (.+) \| (.+) \|$", page("troubleshooting"), re.MULTILINE)


@cache
def templates() -> list[str]:
    """Return the texts in the package's code; in a formatted one ``…`` stands for each value."""
    modules = (ROOT / "jupyter_exec_ext").rglob("*.py")
    return [text for module in modules for text in texts_in(ast.parse(module.read_text(encoding="utf-8")))]


def texts_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[sd]", "…", node.value)


def is_in_the_code(message: str) -> bool:
    return any(message in text for text in templates())


@pytest.mark.parametrize("message", [row[0] for row in ROWS])
def test_message_is_in_the_code(message: str) -> None:
    assert len(message.replace("…", "")) > 12
    assert is_in_the_code(message), message


def test_message_that_no_code_has_is_found() -> None:
    assert not is_in_the_code("nothing listens on …")


def test_every_message_has_a_cause_and_a_remedy() -> None:
    assert len(ROWS) > 20
    assert all(len(cause) > 10 and len(remedy) > 10 for _, cause, remedy in ROWS)
    assert len({message for message, _, _ in ROWS}) == len(ROWS)
