"""Tokens outside the ``Authorization`` header: in WebSocket sub-protocols and, if allowed, in URLs."""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote

from tornado.httputil import HTTPServerRequest
from tornado.routing import PathMatches

from ..server.gate import scoped_token

#: Sub-protocol that carries a browser's token, since a WebSocket has no other headers (Jupyter proposal 121).
TOKEN_PROTOCOL = "v1.token.websocket.jupyter.org"
TOKEN_IN_URL_WARNING = (
    "exec/jupyter accepts tokens in URLs (allow_token_in_url); proxies and browsers may log them, so give these tokens "
    "few scopes and a short lifetime"
)
_IN_URL = re.compile(r"(?<=[?&])token=([^&]*)&?")
_LOGGED = re.compile(r"(?<=[?&]token=)[^&\s'\"]+")
_LOGGERS = ("tornado.access", "tornado.general", "tornado.application")


def hide_tokens_in_logs() -> None:
    """Remove tokens from the URLs that Tornado's loggers write, as Jupyter Server's own log does.

    This covers the host's stock handlers too, since clients also send scoped tokens to their paths.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_hide_tokens)


def _hide_tokens(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        shown = [_LOGGED.sub("[secret]", str(each)) for each in record.args]
        record.args = tuple(text if "[secret]" in text else each for text, each in zip(shown, record.args, strict=True))
    return True


def move_token(request: HTTPServerRequest, *, allow_in_url: bool) -> None:
    """Move a request's token into its ``Authorization`` header.

    A token in the sub-protocols is copied. One in the URL is removed from it, since logs show URLs.

    Parameters
    ----------
    request : HTTPServerRequest
        The request, which this changes. A request with the header stays unchanged.
    allow_in_url : bool
        True if a token may be in the URL. If False, such a token is ignored.
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
    """Matches a path for requests with a scoped token. The host's own handlers serve all others.

    It calls `move_token` on each request whose path matches.

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
        """Match a request.

        Parameters
        ----------
        request : HTTPServerRequest
            The request, which `move_token` may change.

        Returns
        -------
        dict or None
            Arguments of the handler; None if the path differs or the request has no scoped token.
        """
        found: dict[str, Any] | None = super().match(request)
        if found is not None:
            move_token(request, allow_in_url=self._allow_in_url)
        return found if scoped_token(request) is not None else None
