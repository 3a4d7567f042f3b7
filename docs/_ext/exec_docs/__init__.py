"""The parts of the documentation that are made from the code.

`PARTS` are in the pages themselves: ``python tools/make_reference.py`` writes them between two marks. `SITE_PARTS` need
Sphinx, which writes them when it builds the site. Their mark is a comment of its own line::

    <!-- written when the site is built: python_api -->

Each part is a function that returns Markdown and does nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .audit import audit
from .commands import COMMANDS, command, server_options
from .errors import errors_of_clients, errors_of_servers
from .events import events
from .http import TAGS, records, request_table, requests, standard_message_table, standard_request_table
from .python_api import public_names, python_api
from .scopes import scopes
from .traits import CONFIGURABLES, settings

PARTS: dict[str, Callable[[], str]] = {
    "audit": audit,
    "errors_of_clients": errors_of_clients,
    "errors_of_servers": errors_of_servers,
    "events": events,
    "public_names": public_names,
    "records": records,
    "request_table": request_table,
    "scope_requests": scopes,
    "server_options": server_options,
    "standard_message_table": standard_message_table,
    "standard_request_table": standard_request_table,
    **{f"command_{name}": partial(command, name) for name in COMMANDS},
    **{f"requests_{tag}": partial(requests, tag) for tag in TAGS},
    **{f"settings_{cls.__name__}": partial(settings, cls) for cls in CONFIGURABLES},
}
SITE_PARTS: dict[str, Callable[[], str]] = {"python_api": python_api}
_MARK = re.compile(r"^<!-- written when the site is built: (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#:]+)\)")


def written(text: str) -> str:
    """Return a page with the site's parts in the place of their marks.

    Raises
    ------
    KeyError
        For a mark that names no part.
    """
    return _MARK.sub(lambda match: SITE_PARTS[match[1]](), text)


def without_directories(text: str, place: Path) -> str:
    """Return a page whose links lead to files alone: a code host shows a directory, a site has none of them."""
    return _LINK.sub(lambda match: match[1] if (place / match[2]).is_dir() else match[0], text)


def setup(app: Any) -> dict[str, Any]:
    """Have Sphinx write the site's parts into each page that it reads."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = without_directories(written(source[0]), Path(app.env.doc2path(page)).parent)

    def outdated(_app: Any, env: Any, *_changes: Any) -> list[str]:
        # These pages depend on the code, whose files Sphinx does not watch.
        return [page for page in env.found_docs if _MARK.search(env.doc2path(page).read_text(encoding="utf-8"))]

    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
