"""The parts of the documentation that are made from the code when the site is built.

A page has a mark where such a part belongs, which is a comment of its own line::

    <!-- written when the site is built: scopes -->

Each part is a function that returns Markdown and does nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .audit import audit
from .commands import commands
from .errors import errors
from .events import events
from .http import http
from .python_api import python_api
from .scopes import scopes
from .traits import traits

PARTS: dict[str, Callable[[], str]] = {
    "audit": audit,
    "commands": commands,
    "errors": errors,
    "events": events,
    "http": http,
    "python_api": python_api,
    "scopes": scopes,
    "traits": traits,
}
_MARK = re.compile(r"^<!-- written when the site is built: (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#:]+)\)")


def written(text: str) -> str:
    """Return a page with its parts in the place of their marks.

    Raises
    ------
    KeyError
        For a mark that names no part.
    """
    return _MARK.sub(lambda match: PARTS[match[1]](), text)


def without_directories(text: str, place: Path) -> str:
    """Return a page whose links lead to files alone: a code host shows a directory, a site has none of them."""
    return _LINK.sub(lambda match: match[1] if (place / match[2]).is_dir() else match[0], text)


def setup(app: Any) -> dict[str, Any]:
    """Have Sphinx write the parts into each page that it reads."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = without_directories(written(source[0]), Path(app.env.doc2path(page)).parent)

    def outdated(_app: Any, env: Any, *_changes: Any) -> list[str]:
        # What these pages say depends on the code, whose files Sphinx does not watch.
        return [page for page in env.found_docs if _MARK.search(env.doc2path(page).read_text(encoding="utf-8"))]

    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
