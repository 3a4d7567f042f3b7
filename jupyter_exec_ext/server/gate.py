"""Who may come in: the deployment decides who is known, and its authorizer what they may do.

A host has one gate. This one is Jupyter Server's: its identity provider, with its token, cookie or Hub login, and its
own Host, Origin and XSRF checks, all as for Jupyter's own endpoints.
"""

from __future__ import annotations

import re
from typing import Protocol
from urllib.parse import urlsplit

from jupyter_core.utils import ensure_async
from jupyter_server.auth import User
from jupyter_server.base.handlers import APIHandler
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError

from ..auth.caller import Caller, owner
from ..auth.token_format import PREFIX
from ..errors import (
    ExecError,
    Forbidden,
    HostNotAllowed,
    InvalidRequest,
    OriginNotAllowed,
    Unauthenticated,
    Unavailable,
    XSRFCheckFailed,
)
from .deployment_users import describe_user, user_from

UNAUTHENTICATED = "send the server's token, or a scoped one, in the header 'Authorization: token <token>'"
HOST_REFUSED = (
    "this server does not answer to the name in the Host header; set ServerApp.local_hostnames or "
    "ServerApp.allow_remote_access if it should"
)
ORIGIN_REFUSED = "a browser sent this from another site; set ServerApp.allow_origin if it may"


class Gate(Protocol):
    """Decides, before a request's body is read, who sent it."""

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Return the caller and make the host know its user.

        Raises
        ------
        Unauthenticated, HostNotAllowed, OriginNotAllowed, XSRFCheckFailed
        """

    async def preflight(self, handler: APIHandler) -> None:
        """Let a browser ask whether it may send a request (CORS); it brings no credentials.

        Raises
        ------
        HostNotAllowed, OriginNotAllowed
        """


# A scoped token, or what was meant to be one; what it is worth is the engine's to say.
_SCOPED = re.compile(rf"(?:token|bearer)[ \t]+({PREFIX}\S*)", re.IGNORECASE)


class Bearers(Protocol):
    """Knows the bearers of scoped tokens."""

    def authenticate(self, text: str, address: str) -> Caller:
        """Return the bearer of a token that came from an address.

        Raises
        ------
        Unauthenticated, TooManyAttempts, PolicyDenied, StoreUnavailable
        """


def scoped_token(request: HTTPServerRequest) -> str | None:
    """Return the scoped token of a request: from the Authorization header alone, None if there is none."""
    match = _SCOPED.fullmatch(request.headers.get("Authorization", "").strip())
    return match[1] if match else None


def let_in(handler: APIHandler, user: User) -> None:
    """Note what `JupyterHandler.prepare` would, without its login cookie and without asking anybody about a token."""
    handler.current_user = handler._jupyter_current_user = user
    handler._token_authenticated = True  # type: ignore[attr-defined]
    handler.set_cors_headers()


class ServerGate:
    """Jupyter Server's own authentication, and scoped tokens.

    A scoped token is never shown to the server's identity provider: that would set a login cookie, with which its
    bearer could do everything.
    """

    def __init__(self, bearers: Bearers) -> None:
        self._bearers = bearers

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Return the bearer of a scoped token or, if the server knows the user, the owner."""
        _check_senders(handler)
        text = scoped_token(handler.request)
        if text is not None:
            return await self._bearer(handler, text)
        try:
            await APIHandler.prepare(handler)
        except HTTPError as error:
            raise await _translate(handler, error) from None
        user = handler.current_user
        if user is None:
            raise await _unknown(handler)
        name = str(getattr(user, "display_name", "") or getattr(user, "username", ""))
        return owner(name, describe_user(user))

    async def _bearer(self, handler: APIHandler, text: str) -> Caller:
        if not handler.check_host():
            raise HostNotAllowed(HOST_REFUSED)
        handler.current_user = None  # nobody yet: the server would let a token in from any site
        if not handler.check_origin():
            raise OriginNotAllowed(ORIGIN_REFUSED)
        caller = self._bearers.authenticate(text, handler.request.remote_ip or "")
        let_in(handler, await user_from(handler, caller.user))
        return caller

    async def preflight(self, handler: APIHandler) -> None:
        """Answer as the server's own endpoints do."""
        _check_senders(handler)
        await APIHandler.prepare(handler)


def site_of(origin: str) -> str:
    """Return the host and port that an Origin header names.

    Raises
    ------
    OriginNotAllowed
        If it is no URL.
    """
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        raise OriginNotAllowed("the Origin header is not a URL, so it is not known which site sent this") from None


def _check_senders(handler: APIHandler) -> None:
    """Refuse, or take away, headers that the host's own checks and its log would fail to read."""
    headers = handler.request.headers
    for name in ("Origin", "Sec-WebSocket-Origin"):
        site_of(headers.get(name, ""))
    try:
        urlsplit(headers.get("Referer", ""))
    except ValueError:
        del headers["Referer"]


async def _unknown(handler: APIHandler) -> ExecError:
    """Tell a stranger from a JupyterHub user who may not access this server; Jupyter Server sees no user in either."""
    hub_auth = getattr(handler.identity_provider, "hub_auth", None)
    user = await hub_auth.get_user(handler, sync=False) if hub_auth is not None else None
    if user is None:
        return Unauthenticated(UNAUTHENTICATED)
    return Forbidden("JupyterHub knows this token, but its scopes do not hold 'access:servers' for this server")


async def _translate(handler: APIHandler, error: HTTPError) -> ExecError:
    """Say in our terms which of the host's checks failed; it tells them apart by status and state only."""
    if not handler.check_host():
        return HostNotAllowed(HOST_REFUSED)
    if error.status_code == 400:  # without what was sent, which may be part of a token
        return InvalidRequest("what the request says about its sender is not valid UTF-8")
    if error.status_code >= 500:
        return Unavailable("the server could not find out who sends this; its identity provider failed")
    if handler.current_user is None:
        return await _unknown(handler)
    if error.status_code == 404:
        return OriginNotAllowed(ORIGIN_REFUSED)
    if error.status_code == 403 and "xsrf" in (error.log_message or "").lower():
        return XSRFCheckFailed("send the cookie '_xsrf' and its value in the header 'X-XSRFToken', or use a token")
    return Forbidden(error.log_message or "the server refused the request")


async def authorize(handler: APIHandler, action: str, resource: str) -> None:
    """Ask the deployment's authorizer about the authenticated user.

    Raises
    ------
    Forbidden
        Also if the authorizer cannot say: what fails must not let anybody in.
    """
    authorizer = handler.authorizer
    try:
        allowed = await ensure_async(authorizer.is_authorized(handler, handler.current_user, action, resource))
    except Exception as error:
        handler.log.error(
            "%s cannot say whether a user may %s %s", type(authorizer).__name__, action, resource, exc_info=error
        )
        raise Forbidden(f"the server's authorizer failed to say whether this user may {action} {resource}") from None
    if not allowed:
        raise Forbidden(f"the server's authorizer does not let this user {action} {resource}")
