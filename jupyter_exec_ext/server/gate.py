"""Gate: authentication and authorisation of each request before its body is read.

The deployment authenticates its users and authorises their actions. A host has one gate. `ServerGate` is Jupyter
Server's: it uses the identity provider (token, cookie or Hub login) and the Host, Origin and XSRF checks of Jupyter's
own endpoints.

A scoped token carries a record of the user who created it, so that the authorizer can be asked about that user later.
`hub_callers` has the users of JupyterHub.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from jupyter_core.utils import ensure_async
from jupyter_server.auth import AllowAllAuthorizer, User
from jupyter_server.base.handlers import APIHandler
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError

from ..auth.caller import Caller, owner
from ..auth.scopes import require_scope
from ..auth.token_format import PREFIX
from ..errors import (
    ExecError,
    Forbidden,
    HostNotAllowed,
    InvalidRequest,
    MissingScope,
    OriginNotAllowed,
    OwnerOnly,
    Unauthenticated,
    Unavailable,
    XSRFCheckFailed,
)
from .hub_callers import OF_THE_HUB, HubCallers, present_hub_user
from .hub_tokens import HubTokens, HubUser
from .site_checks import HOST_REFUSED, ORIGIN_REFUSED, check_senders, check_site

_NO_TOKEN = (
    "no token was given; use the one in the URL that the server printed at its start, or create one with 'jupyter exec "
    "token create'"
)
_WRONG_TOKEN = "the server refused this token; check that it is complete and belongs to this server"
_TOKEN_IN_URL = (
    "the server refused the token in the URL; send it in the header 'Authorization: token TOKEN', or set "
    "'allow_token_in_url' if the client uses exec/jupyter"
)
# A scoped token, or a text meant as one; the engine decides.
_SCOPED = re.compile(rf"(?:token|bearer)[ \t]+({PREFIX}\S*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Access:
    """Rights that one method of one route needs.

    Parameters
    ----------
    scope : str or None
        The scope; None if every caller has the right.
    action, resource : str
        The arguments for the deployment's authorizer.
    owner_only : bool
        Whether no scoped token is enough.
    or_scope : str or None
        An alternative to `scope`; the engine decides which of the two the request itself needs.
    and_scope : str or None
        A scope that is needed beside `scope`.
    """

    scope: str | None
    action: str
    resource: str = "kernels"
    owner_only: bool = False
    or_scope: str | None = None
    and_scope: str | None = None

    def __post_init__(self) -> None:
        """Fail at import for a misspelt scope, so that no server starts without its check."""
        for name in (self.scope, self.or_scope, self.and_scope):
            if name is not None:
                require_scope(name)

    @property
    def scopes(self) -> str:
        """The needed scopes in words; empty if every caller has the right."""
        if self.and_scope is not None:
            return f"{self.scope} and {self.and_scope}"
        return " or ".join(scope for scope in (self.scope, self.or_scope) if scope is not None)

    def suffices(self, scopes: Collection[str]) -> bool:
        """Return whether these scopes are enough."""
        if self.scope is not None and self.scope not in scopes and self.or_scope not in scopes:
            return False
        return self.and_scope is None or self.and_scope in scopes


class Gate(Protocol):
    """Port to the host's authentication, used before a request's body is read."""

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Return the caller and set the host's user.

        Raises
        ------
        Unauthenticated, HostNotAllowed, OriginNotAllowed, XSRFCheckFailed
            If the request fails the check of this name.
        """

    async def preflight(self, handler: APIHandler) -> None:
        """Answer a browser's CORS preflight, which has no credentials.

        Raises
        ------
        HostNotAllowed, OriginNotAllowed
            If the request fails the check of this name.
        """

    def check_site(self, handler: APIHandler) -> None:
        """Check Host and Origin of a request that needs no credentials; raises as `preflight`."""


class Bearers(Protocol):
    """Port to the authentication of scoped tokens."""

    def authenticate(self, text: str, address: str) -> Caller:
        """Return the bearer of a token that came from an address.

        Raises
        ------
        Unauthenticated
            If the token is not valid.
        TooManyAttempts
            If the address has sent too many invalid ones.
        PolicyDenied, StoreUnavailable
            If its policy is gone, or the store cannot be read.
        """


def scoped_token(request: HTTPServerRequest) -> str | None:
    """Return the scoped token in a request's Authorization header; None if there is none."""
    match = _SCOPED.fullmatch(request.headers.get("Authorization", "").strip())
    return match[1] if match else None


def let_in(handler: APIHandler, user: User) -> None:
    """Set a handler's user like `JupyterHandler.prepare`, but without a login cookie or identity provider."""
    state: Any = handler  # the attributes are Jupyter Server's own
    state.current_user = state._jupyter_current_user = user
    # `set_cors_headers` reads this: a page that sends a token gets its own origin back.
    state._token_authenticated = True
    handler.set_cors_headers()


class ServerGate:
    """Jupyter Server's own authentication, and scoped tokens.

    The server's identity provider never gets a scoped token: it would set a login cookie with full rights.

    Parameters
    ----------
    bearers : Bearers
        Authenticates scoped tokens.
    hub : HubCallers, optional
        Knows the bearers of JupyterHub's tokens.
    """

    def __init__(self, bearers: Bearers, hub: HubCallers | None = None) -> None:
        self._bearers = bearers
        self._hub = hub

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Return the bearer of a scoped token, or the owner for an authenticated user."""
        check_senders(handler)
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
        if self._hub is None:
            return owner(name, describe_user(user))
        hub_user = getattr(user, "hub_user", None)
        if not isinstance(hub_user, HubUser):
            raise Unavailable("the server's identity provider did not ask JupyterHub whose token this is")
        return await self._hub.caller(hub_user, name)

    async def _bearer(self, handler: APIHandler, text: str) -> Caller:
        # `JupyterHandler.prepare` makes these checks otherwise, and it is not called for scoped tokens.
        check_site(handler)
        caller = self._bearers.authenticate(text, handler.request.remote_ip or "")
        let_in(handler, await user_from(handler, caller.user, None if self._hub is None else self._hub.tokens))
        return caller

    async def preflight(self, handler: APIHandler) -> None:
        """Answer like the server's own endpoints."""
        check_senders(handler)
        await APIHandler.prepare(handler)

    def check_site(self, handler: APIHandler) -> None:
        """Check like the server's own endpoints."""
        check_site(handler)


def unauthenticated(request: HTTPServerRequest) -> Unauthenticated:
    """Return the error for a caller without a valid token."""
    if request.headers.get("Authorization"):
        return Unauthenticated(_WRONG_TOKEN)
    return Unauthenticated(_TOKEN_IN_URL if request.query_arguments.get("token") else _NO_TOKEN)


async def _unknown(handler: APIHandler) -> ExecError:
    """Return the error for an unknown caller, or for a JupyterHub user without access to this server."""
    hub_auth = getattr(handler.identity_provider, "hub_auth", None)
    user = await hub_auth.get_user(handler, sync=False) if hub_auth is not None else None
    if user is None:
        return unauthenticated(handler.request)
    return Forbidden("JupyterHub knows this token, but its scopes do not hold 'access:servers' for this server")


async def _translate(handler: APIHandler, error: HTTPError) -> ExecError:
    """Return our error for a failed check of the host, which shows in the status and the handler's state only."""
    if not handler.check_host():
        return HostNotAllowed(HOST_REFUSED)
    if error.status_code == 400:  # without what was sent, which may be part of a token
        return InvalidRequest("what the request says about its sender is not valid UTF-8")
    if error.status_code >= 500:
        return Unavailable("the server could not find out who sends this; its identity provider failed")
    if handler.current_user is None:
        return await _unknown(handler)
    if error.status_code == 404:  # the status that `APIHandler.prepare` has for a foreign origin
        return OriginNotAllowed(ORIGIN_REFUSED)
    if error.status_code == 403 and "xsrf" in (error.log_message or "").lower():
        return XSRFCheckFailed("send the cookie '_xsrf' and its value in the header 'X-XSRFToken', or use a token")
    return Forbidden(error.log_message or "the server refused the request")


async def authorize(handler: APIHandler, action: str, resource: str) -> None:
    """Check an action of the authenticated user with the deployment's authorizer.

    Raises
    ------
    Forbidden
        If the authorizer refuses or fails: a fault must not grant access.
    """
    authorizer = handler.authorizer
    try:
        allowed = await ensure_async(authorizer.is_authorized(handler, handler.current_user, action, resource))
    except Exception as error:  # an authorizer is the deployment's own code
        handler.log.error(
            "%s cannot say whether a user may %s %s", type(authorizer).__name__, action, resource, exc_info=error
        )
        raise Forbidden(f"the server's authorizer failed to say whether this user may {action} {resource}") from None
    if not allowed:
        raise Forbidden(f"the server's authorizer does not let this user {action} {resource}")


async def check_access(handler: APIHandler, caller: Caller, access: Access) -> None:
    """Check a caller's rights to one method of a route.

    Raises
    ------
    MissingScope, OwnerOnly, Forbidden
        If a scope is missing, only the owner has the right, or the authorizer refuses.
    """
    if not access.suffices(caller.scopes):
        names = " ".join(repr(word) if ":" in word else word for word in access.scopes.split())
        raise MissingScope(f"this needs the scope {names}, which the token does not have")
    if access.owner_only and not caller.is_owner:
        raise OwnerOnly("this is the server's owner's to do; no scoped token will do")
    await authorize(handler, access.action, access.resource)


# --- users of the deployment, kept with the scoped tokens that they create ---


def describe_user(user: Any) -> dict[str, Any]:
    """Return the record for `user_from`; empty if the user's rights cannot be checked later."""
    if not isinstance(user, User):
        return {}
    return {name: value for name, value in asdict(user).items() if value is not None}


async def user_from(handler: APIHandler, described: Mapping[str, Any], hub: HubTokens | None = None) -> User:
    """Return the user of a record, as far as the authorizer reads it.

    Raises
    ------
    Unavailable
        If JupyterHub does not answer for the user.
    """
    # `AllowAllAuthorizer` reads no user, so the Hub need not be asked.
    if described.get(OF_THE_HUB) and type(handler.authorizer) is not AllowAllAuthorizer:
        return await present_hub_user(handler, described, hub)
    return User(**{name: value for name, value in described.items() if name in User.__dataclass_fields__})
