"""Alias of a scoped token: the token that a client chose for the gateway that it starts."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import ErrorHandler

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from .renewed_token import RenewedToken
from .routes import STANDARD_PREFIX
from .tokens_outside_header import move_token

# Scopes that clients of the kernels API need.
_SCOPES = (
    *("executions:control", "executions:create", "executions:read"),
    *("sessions:create", "sessions:delete", "sessions:read"),
)


class TokenAlias(Matcher):
    """Replaces the client's token by a scoped token in each request. It runs before all routes, and matches none.

    Parameters
    ----------
    text : str
        Token that the client chose.
    base_url : str
        Base path of the gateway.
    scoped : RenewedToken
        The scoped token. Until it is created, requests with the client's token are refused.
    allow_in_url : bool
        True if the token may be in the URL of a request to the kernels API, as for `move_token`.
    """

    def __init__(self, text: str, base_url: str, scoped: RenewedToken, *, allow_in_url: bool) -> None:
        self._text = text.encode()
        self._standard = re.compile(rf"{re.escape(base_url.rstrip('/'))}/(?:{STANDARD_PREFIX}/)?api(?:/|$)")
        self._allow_in_url = allow_in_url
        self._scoped = scoped

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Replace the client's token in a request by the scoped token.

        Parameters
        ----------
        request : HTTPServerRequest
            The request, which this changes.

        Returns
        -------
        None
            The routes after this one match the request.
        """
        if self._standard.match(request.path):
            move_token(request, allow_in_url=self._allow_in_url)
        text = request.headers.get("Authorization", "").partition(" ")[2].strip()
        if self._scoped.text and hmac.compare_digest(text.encode(), self._text):
            request.headers["Authorization"] = f"token {self._scoped.text}"
        return None


def replace_auth_token(
    app: Any, engine: ExecEngine, caller: Caller, *, allow_in_url: bool
) -> tuple[Rule, RenewedToken]:
    """Replace a gateway's token by a random secret, and make its old token an alias of a scoped one.

    Parameters
    ----------
    app : KernelGatewayApp
        The gateway, before its event loop starts.
    engine : ExecEngine
        Engine that gets the scoped token.
    caller : Caller
        Creator of the scoped token.
    allow_in_url : bool
        As for `TokenAlias`.

    Returns
    -------
    tuple of Rule and RenewedToken
        Rule that belongs before all others, and the scoped token, which is to be closed before the engine.

    Raises
    ------
    SystemExit
        If the gateway has no token.
    """
    if not app.auth_token:
        raise SystemExit("jupyter_exec_ext: ExecPersonality.auth_token_is_scoped needs a token; set KG_AUTH_TOKEN")
    scoped = RenewedToken(engine.tokens, caller, "auth_token", _SCOPES, engine.max_token_seconds)
    scoped.start()
    alias = TokenAlias(app.auth_token, app.base_url, scoped, allow_in_url=allow_in_url)
    app.auth_token = secrets.token_urlsafe(32)
    return Rule(alias, ErrorHandler), scoped
