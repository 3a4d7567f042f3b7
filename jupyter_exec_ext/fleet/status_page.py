"""Status page of a pool: its figures and servers as plain HTML, for which browsers ask for a token."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pool of servers</title>
<style>
body {{ font-family: sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; margin-bottom: 2em; }}
th, td {{ border-bottom: 1px solid #ccc; padding: 0.3em 1.5em 0.3em 0; text-align: left; }}
</style></head>
<body><h1>Pool of servers</h1>
<table>{figures}</table>
<table><thead><tr><th>Server</th><th>State</th><th>Sessions</th><th>Running</th><th>Problem</th></tr></thead>
<tbody>{servers}</tbody></table></body></html>
"""


def status_page(figures: Mapping[str, Any], servers: Iterable[Mapping[str, Any]]) -> web.Response:
    """Return the page."""
    named = (
        f"<tr><th>{_text(name.replace('_', ' '))}</th><td>{_text(value)}</td></tr>" for name, value in figures.items()
    )
    rows = (f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in server.values())}</tr>" for server in servers)
    text = _PAGE.format(figures="".join(named), servers="".join(rows))
    return web.Response(text=text, content_type="text/html", headers=_HEADERS)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{count} {state}" for state, count in value.items())
    return html.escape("none" if value is None else str(value))


def token_from_basic_login(authorization: str) -> str:
    """Return a header that has the password of a browser's dialog as its token; other headers as they are."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return authorization
    try:
        return f"Bearer {base64.b64decode(encoded, validate=True).decode().partition(':')[2]}"
    except ValueError:
        return ""
