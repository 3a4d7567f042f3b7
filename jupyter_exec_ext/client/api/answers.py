"""Answers of a server: the errors that unsuccessful ones stand for, and the JSON of successful ones."""

from __future__ import annotations

import re
from typing import Any

from ...errors import ExecError, Forbidden, NotFound, Unauthenticated, UnexpectedAnswer
from ...protocol.strict_json import loads_strict
from ...system.resources import keep_freed_memory
from .steps import Reply

#: Statuses of a server, or a proxy before it, that is busy.
BUSY_STATUSES = frozenset({502, 503, 504})
# From this size on, the memory of an answer is worth keeping for the next one: see `keep_freed_memory`.
_LARGE_BYTES = 1024 * 1024
_DEFAULT_TEXTS = {401: "the server wants a token, or another one than it was given"}
_TITLE = re.compile(rb"<title[^>]*>\s*([^<]{1,200})", re.IGNORECASE)


def error_from(reply: Reply) -> ExecError:
    """Return the error that an answer stands for: that of its code, if it is known, else that of its status."""
    if 300 <= reply.status < 400:
        to_login = " to its login page" if "login" in reply.headers.get("location", "") else ""
        return UnexpectedAnswer(
            f"the server redirects{to_login} ({reply.status}) instead of answering; check the base URL and, at a "
            "JupyterHub, that the user's server runs"
        )
    if _is_page(reply) and reply.status not in BUSY_STATUSES:
        return UnexpectedAnswer(_page_problem(reply))
    try:
        body = loads_strict(reply.body)
    except ValueError:
        body = None
    known = isinstance(body, dict) and isinstance(body.get("message"), str)
    message = body["message"] if known else ""
    if not message:  # Enterprise Gateway uses Jupyter's other field
        reason = body.get("reason") if known else None
        message = _DEFAULT_TEXTS.get(reply.status) or str(reason or "")
    code = body.get("code") if isinstance(body, dict) else None
    if code is None and reply.status == 403:  # Jupyter's own API refuses a token so
        message = f"the server refused ({message}); is the token right, and may its user do this?"
    by_status = {401: Unauthenticated, 403: Forbidden, 404: NotFound}.get(reply.status, UnexpectedAnswer)
    error_class = ExecError.for_code(code) if isinstance(code, str) else None
    retry_after = reply.headers.get("retry-after", "")
    request_id = (body.get("request_id") or reply.headers.get("x-request-id")) if isinstance(code, str) else None
    return (error_class or by_status)(
        message or f"the server answered {reply.status}",
        retry_after_seconds=float(retry_after) if retry_after.isdecimal() else None,
        request_id=request_id,
        limit=body.get("limit") if known else None,
    )


def _is_page(reply: Reply) -> bool:
    """Return whether an answer is a page for people."""
    return "html" in reply.headers.get("content-type", "")


def _page_problem(reply: Reply) -> str:
    """Return the message for a page that came in the place of an answer."""
    found = _TITLE.search(reply.body)
    title = found[1].decode("utf-8", "replace").strip() if found else ""
    title = "".join(char for char in title if char.isprintable())
    kind = "a login page" if "login" in title.lower() or "sign in" in title.lower() else "a page"
    of = f" titled {title!r}" if title else ""
    return (
        f"this answer is not from exec/v1: {kind}{of} (status {reply.status}); check that the address is that of a "
        "Jupyter server, with the whole path before /lab"
    )


def parsed(reply: Reply) -> Any:
    """Return the JSON of a successful answer; raise the error of an unsuccessful one."""
    if not reply.ok:
        raise error_from(reply)
    if reply.status == 204:
        return None
    if len(reply.body) > _LARGE_BYTES:
        keep_freed_memory()
    try:
        return loads_strict(reply.body)
    except ValueError:
        if _is_page(reply):
            raise UnexpectedAnswer(_page_problem(reply)) from None
        raise UnexpectedAnswer(
            "the server answered with something that is not JSON; check that this is the address of a Jupyter server"
        ) from None


def list_in(body: Any, name: str) -> list[Any]:
    """Return a list in an answer; raise `UnexpectedAnswer` if it is missing."""
    items = body.get(name) if isinstance(body, dict) else None
    if not isinstance(items, list):
        raise UnexpectedAnswer(f"the server's list has no {name!r}")
    return items
