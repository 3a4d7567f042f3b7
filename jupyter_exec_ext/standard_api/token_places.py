"""Places other than a header where clients of Jupyter's standard API put their tokens."""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote

from tornado.httputil import HTTPServerRequest
from tornado.routing import PathMatches

from ..server.gate import scoped_token

#: Sub-protocol by which a browser, which cannot set headers, sends its token (Jupyter's enhancement proposal 121).
TOKEN_PROTOCOL = "v1.token.websocket.jupyter.org"
TOKEN_IN_URL_WARNING = (
    "exec/jupyter takes tokens from URLs (allow_token_in_url); proxies and browsers may log them, so give these tokens "
    "few rights and a short life"
)
_IN_URL = re.compile(r"(?<=[?&])token=([^&]*)&?")


_LOGGED = re.compile(r"(?<=[?&]token=)[^&\s'\"]+")
_LOGGERS = ("tornado.access", "tornado.general", "tornado.application")


def hide_tokens_in_logs() -> None:
    """Have Tornado's loggers write URLs without tokens, as Jupyter Server's own log does.

    A host that has them uses this: clients send scoped tokens to paths of its stock handlers, too.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_hide_tokens)


def _hide_tokens(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        shown = [_LOGGED.sub("[secret]", str(each)) for each in record.args]
        record.args = tuple(text if "[secret]" in text else each for text, each in zip(shown, record.args, strict=True))
    return True


def move_token(request: HTTPServerRequest, *, allow_in_url: bool) -> None:
    """Move a request's token into its ``Authorization`` header, if it is elsewhere. This changes the request.

    A token in the sub-protocols is copied. One in the URL is taken out of it, since logs show URLs.

    Parameters
    ----------
    request : HTTPServerRequest
        The request. One with the header is left as it is.
    allow_in_url : bool
        True if a token may be in the URL. Otherwise, one that is there is left alone and means nothing.
    """
    if "Authorization" in request.headers:
        return
    offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    start = f"{TOKEN_PROTOCOL}."
    token = next((each.removeprefix(start) for each in offered if each.startswith(start)), "")
    in_url = _IN_URL.search(request.uri or "") if allow_in_url else None
    if in_url is not None:
        token = token or in_url[1]
        request.uri = _IN_URL.sub("", request.uri or "").rstrip("?&")
        request.query = request.uri.partition("?")[2]
        request.arguments.pop("token", None)
        request.query_arguments.pop("token", None)
    if token:
        request.headers["Authorization"] = f"token {unquote(token)}"


class ScopedPath(PathMatches):
    """Matches a path if the request has a scoped token; others get what the host has at the path.

    Matching moves the request's token into its header, as `move_token` does.

    Parameters
    ----------
    pattern : str
        Regular expression for the whole path.
    allow_in_url : bool
        True if a token may be in the URL, as for `move_token`.
    """

    def __init__(self, pattern: str, *, allow_in_url: bool) -> None:
        super().__init__(f"{pattern}$")
        self._allow_in_url = allow_in_url

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments of the handler, or None for a request that is another one's."""
        found: dict[str, Any] | None = super().match(request)
        if found is not None:
            move_token(request, allow_in_url=self._allow_in_url)
        return found if scoped_token(request) is not None else None
