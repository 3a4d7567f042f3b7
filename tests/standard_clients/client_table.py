"""The table of clients in docs/howto/kernels-api.md: what to enter in each, as its test enters it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "kernels-api.md"
_ROW = re.compile(r"^\| (.+?) \| .*?`([^`]+)`.*? \| (yes|no) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A client's row: the first code in its second cell, and whether it needs a token in the URL."""

    entered: str
    is_in_url: bool


def read_dockerfile() -> str:
    """Return the page's Dockerfile for smolagents."""
    return PAGE.read_text(encoding="utf-8").partition("```dockerfile\n")[2].partition("```")[0]


def read_table() -> dict[str, Row]:
    """Return the rows by their clients."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## What to enter\n")
    return {name: Row(entered, url == "yes") for name, entered, url in _ROW.findall(section.partition("\n## ")[0])}
