"""Tests of the administrators' pages: each recipe is run as written, with the test's addresses, ports and paths."""

from __future__ import annotations

from tests.docs.blocks import DOCS

#: Seconds for a request or a program's end.
SECONDS = 60.0


def page(name: str) -> str:
    """Return the text of an administrators' page."""
    return (DOCS / "admin" / f"{name}.md").read_text(encoding="utf-8")
