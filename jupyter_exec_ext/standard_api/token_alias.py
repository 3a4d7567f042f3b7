"""Scoped token behind a token that a client has chosen itself, for gateways that clients start."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.routing import Matcher, Rule
from tornado.web import ErrorHandler

from ..auth.caller import Caller
from ..engine.access.token_service import TokenService
from ..models import TokenRequest
from .routes import STANDARD_PREFIX
from .token_places import move_token

# What clients of the standard API do.
_SCOPES = (
    *("executions:control", "executions:create", "executions:read"),
    *("sessions:create", "sessions:delete", "sessions:read"),
)


class TokenAlias(Matcher):
    """Replaces the client's own token by a scoped token, ahead of all routes; matches no request itself.

    Parameters
    ----------
    text : str
        The client's own token.
    base_url : str
        Path of the gateway.
    allow_in_url : bool
        True if it may be in a URL of the standard API, as for `move_token`.
    """

    def __init__(self, text: str, base_url: str, *, allow_in_url: bool) -> None:
        self._text = text.encode()
        self._standard = re.compile(rf"{re.escape(base_url.rstrip('/'))}/(?:{STANDARD_PREFIX}/)?api(?:/|$)")
        self._allow_in_url = allow_in_url
        self._scoped = ""

    async def create_token(self, tokens: TokenService, caller: Caller) -> None:
        """Create the scoped token, under the default policy. Until then, the client's own one is refused.

        Parameters
        ----------
        tokens : TokenService
            Creates it.
        caller : Caller
            Its creator.
        """
        self._scoped = (await tokens.create(caller, TokenRequest("auth_token", scopes=_SCOPES))).text

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Put the scoped token into a request with the client's own one; return None.

        Parameters
        ----------
        request : HTTPServerRequest
            The request, which this changes.
        """
        if self._standard.match(request.path):
            move_token(request, allow_in_url=self._allow_in_url)
        text = request.headers.get("Authorization", "").partition(" ")[2].strip()
        if self._scoped and hmac.compare_digest(text.encode(), self._text):
            request.headers["Authorization"] = f"token {self._scoped}"
        return None


def replace_auth_token(app: Any, tokens: TokenService, caller: Caller, *, allow_in_url: bool) -> Rule:
    """Give a gateway a new token, which is shown nowhere; return a rule for its previous one, ahead of all others.

    Parameters
    ----------
    app : KernelGatewayApp
        The gateway, whose event loop does not run yet.
    tokens : TokenService
        Creates the scoped token.
    caller : Caller
        Its creator.
    allow_in_url : bool
        As for `TokenAlias`.

    Raises
    ------
    SystemExit
        If the gateway has no token.
    """
    if not app.auth_token:
        raise SystemExit("jupyter_exec_ext: ExecPersonality.auth_token_is_scoped needs a token; set KG_AUTH_TOKEN")
    alias = TokenAlias(app.auth_token, app.base_url, allow_in_url=allow_in_url)
    app.auth_token = secrets.token_urlsafe(32)
    IOLoop.current().add_callback(alias.create_token, tokens, caller)
    return Rule(alias, ErrorHandler)
