"""Who may come in: the deployment decides who is known, and its authorizer what they may do.

A host has one gate. This one is Jupyter Server's: its identity provider, with its token, cookie or Hub login, and its
own Host, Origin and XSRF checks, all as for Jupyter's own endpoints.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlsplit

from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError

from ..auth.caller import Caller, owner
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

UNAUTHENTICATED = "send the server's token in the header 'Authorization: token <token>'"


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


class ServerGate:
    """Jupyter Server's own authentication."""

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Return the owner, if the server knows the user."""
        _check_senders(handler)
        try:
            await APIHandler.prepare(handler)
        except HTTPError as error:
            raise await _translate(handler, error) from None
        user = handler.current_user
        if user is None:
            raise await _unknown(handler)
        return owner(str(getattr(user, "display_name", "") or getattr(user, "username", "")))

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
        return HostNotAllowed(
            "this server does not answer to the name in the Host header; set ServerApp.local_hostnames or "
            "ServerApp.allow_remote_access if it should"
        )
    if error.status_code == 400:  # without what was sent, which may be part of a token
        return InvalidRequest("what the request says about its sender is not valid UTF-8")
    if error.status_code >= 500:
        return Unavailable("the server could not find out who sends this; its identity provider failed")
    if handler.current_user is None:
        return await _unknown(handler)
    if error.status_code == 404:
        return OriginNotAllowed("a browser sent this from another site; set ServerApp.allow_origin if it may")
    if error.status_code == 403 and "xsrf" in (error.log_message or "").lower():
        return XSRFCheckFailed("send the cookie '_xsrf' and its value in the header 'X-XSRFToken', or use a token")
    return Forbidden(error.log_message or "the server refused the request")


async def authorize(handler: APIHandler, action: str, resource: str) -> None:
    """Ask the deployment's authorizer about the authenticated user.

    Raises
    ------
    Forbidden
    """
    allowed = await ensure_async(handler.authorizer.is_authorized(handler, handler.current_user, action, resource))
    if not allowed:
        raise Forbidden(f"the server's authorizer does not let this user {action} {resource}")
