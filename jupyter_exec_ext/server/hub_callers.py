"""Callers with a JupyterHub token: the owner, or a caller under the policy of the token's scopes.

Only the Hub knows a user's rights. A scoped token that the server's own user has created acts in that user's name, and
the deployment's authorizer gets this user as the Hub describes it now. One that was created with another Hub token acts
in that token's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from jupyter_server.auth import User
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.web import HTTPError

from ..auth.caller import OWNER, Caller
from ..engine.access.hub_token_service import HubTokenService
from ..errors import Forbidden, Unavailable
from .hub_tokens import HubTokens, HubUser

# JupyterHub's own default is 300. A revoked token is known by then after 5 minutes.
_CACHE_SECONDS = 5
OF_THE_HUB = "hub"
_HUB_TOKEN = "hub_token"


class Standing(NamedTuple):
    """Meaning of a Hub token for this server.

    Parameters
    ----------
    is_own : bool
        Whether it is of the server's own user, or of an administrator.
    policy : str or None
        The policy that binds its bearer, empty if none of its scopes has one; None for an owner.
    """

    is_own: bool
    policy: str | None


def find_mapping_problem(mapping: Mapping[Any, Any], policies: Mapping[str, Any], is_hubs: bool) -> str:
    """Return the mistake in ``ExecExtensionApp.hub_policies``; empty if there is none.

    Parameters
    ----------
    is_hubs : bool
        Whether JupyterHub says who the server's users are. Without it, a mapping would limit no one.
    """
    if mapping and not is_hubs:
        return "ExecExtensionApp.hub_policies: this server's identity provider is not JupyterHub's"
    for scope, policy in mapping.items():
        if not isinstance(scope, str) or not scope or "!" in scope:
            return f"ExecExtensionApp.hub_policies: {scope!r} must be the name of a scope, without a filter"
        if not isinstance(policy, str) or policy not in policies:
            known = ", ".join(policies)
            return f"ExecExtensionApp.hub_policies: there is no policy {policy!r} for {scope!r}; there are {known}"
    return ""


class HubCallers:
    """Decides who the bearer of a Hub token is, and has the Hub asked about tokens in use.

    Parameters
    ----------
    provider : object
        JupyterHub's identity provider.
    records : HubTokenService
        Callers under a policy.
    mapping : mapping
        Policies by scope, the first match first; an empty one matches nothing. Without a mapping, everyone who may
        access the server is its owner.
    stale_seconds : float
        How long an answer of the Hub stays good while the Hub is away.
    """

    def __init__(
        self, provider: Any, records: HubTokenService, mapping: Mapping[str, str], *, stale_seconds: float, log: Any
    ) -> None:
        self._provider = provider
        self._hub_auth = provider.hub_auth
        self._records = records
        self._mapping = mapping
        server = f"{os.environ.get('JUPYTERHUB_USER', '')}/{os.environ.get('JUPYTERHUB_SERVER_NAME', '')}"
        self._on_this_server = f"!server={server}"
        self.tokens = HubTokens(self._hub_auth, records, self.standing_of, stale_seconds=stale_seconds, log=log)

    def install(self, is_ours: Callable[[JupyterHandler], bool]) -> None:
        """Have the whole server ask the Hub in this way, so that its other pages outlast an outage as well.

        Parameters
        ----------
        is_ours : callable
            Returns whether a handler is one of this package's. All others are closed to a token under a policy, which
            could otherwise run code there without it.
        """
        if not _is_configured(self._hub_auth, "cache_max_age", "cookie_cache_max_age"):
            self._hub_auth.cache_max_age = _CACHE_SECONDS
        self._hub_auth.user_for_token = partial(_user_for_token, self.tokens, self._hub_auth.user_for_token)
        self._provider.get_user = partial(_user_of_handler, self._provider.get_user, is_ours)
        self._records.ask(self.tokens)

    def standing_of(self, user: Mapping[str, Any]) -> Standing | None:
        """Return the meaning of a token for this server; None if it may not access the server."""
        if not self._hub_auth.check_scopes(self._hub_auth.access_scopes, user):
            return None
        is_own = bool(describe_hub_user(user))
        if is_own or not self._mapping:
            return Standing(is_own, None)
        for scope, policy in self._mapping.items():
            # Held without a filter, or for this server or its user.
            if policy and self._hub_auth.check_scopes(scope + self._on_this_server, user):
                return Standing(is_own, policy)
        return Standing(is_own, "")

    async def caller(self, user: HubUser, display_name: str) -> Caller:
        """Return the bearer of a Hub token.

        Raises
        ------
        Forbidden
            If none of its scopes has a policy.
        TokenRevoked, TooManyTokens, StorageFull, StoreUnavailable
            As `HubTokenService.caller`.
        """
        token, standing = user.token, user.token.standing
        if not isinstance(standing, Standing):
            raise Forbidden("JupyterHub does not let this token access the server any more")
        if standing.policy is None:
            # The server's own token ends whenever the server stops, which is no reason to end what it has made.
            is_login = user.get("session_id") is not None or token.text == self._hub_auth.api_token
            return Caller(OWNER, display_name, user=describe_hub_user(user), hub_token=token.digest, is_login=is_login)
        if not standing.policy:
            scopes = ", ".join(self._mapping)
            raise Forbidden(
                "JupyterHub lets this token access the server, but it has no scope to run code there; it needs one of "
                f"{scopes} (ExecExtensionApp.hub_policies)"
            )
        name = f"Hub token {user.get('token_id')} of {user.get('kind')} {user['name']}"
        record = {"username": user["name"], OF_THE_HUB: True, _HUB_TOKEN: token.digest}
        return await self._records.caller(token.digest, name, record, standing.policy)


def _user_for_token(
    tokens: HubTokens, original: Any, token: str, use_cache: bool = True, session_id: str = "", *, sync: bool = True
) -> Any:
    """Take the place of `HubAuth.user_for_token`, which asks in a thread if `sync` is true."""
    if sync:
        return original(token, use_cache, session_id)
    return tokens.user_for_token(token, use_cache, session_id)


async def _user_of_handler(original: Any, is_ours: Callable[[JupyterHandler], bool], handler: JupyterHandler) -> Any:
    """Take the place of the identity provider's `get_user`."""
    user = await original(handler)
    hub_user = getattr(user, "hub_user", None)
    if not isinstance(hub_user, HubUser) or is_ours(handler):
        return user
    standing = hub_user.token.standing
    if isinstance(standing, Standing) and standing.policy is None:
        return user
    state: Any = handler
    state.redirect = _refuse  # as JupyterHub does: a login would lead back to this page for ever
    return None


def _refuse(*_args: Any, **_options: Any) -> None:
    raise HTTPError(403, "JupyterHub's token opens exec/v1, exec/aca and exec/mcp here (ExecExtensionApp.hub_policies)")


def _is_configured(hub_auth: Any, *names: str) -> bool:
    sections = (hub_auth.config.get(section, {}) for section in type(hub_auth).section_names())
    return any(name in section for section in sections for name in names)


# --- users of the Hub, kept with the scoped tokens that they create ---


def describe_hub_user(hub_user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the server's own user, if this is that user or an administrator, who acts for it."""
    server_user = os.environ.get("JUPYTERHUB_USER")
    if not server_user or hub_user.get("kind") != "user":  # a service may have the same name
        return {}
    if hub_user.get("name") != server_user and hub_user.get("admin") is not True:
        return {}
    return {"username": server_user, OF_THE_HUB: True}


async def present_hub_user(handler: APIHandler, described: Mapping[str, Any], tokens: HubTokens | None) -> User:
    """Return the Hub's present description of the user in whose name a token was created.

    Raises
    ------
    Unavailable
        If the Hub does not give one.
    """
    # Only servers under JupyterHub have this package.
    from jupyterhub.singleuser.extension import JupyterHubUser

    provider: Any = handler.identity_provider  # JupyterHub's own
    hub_auth = provider.hub_auth
    if _HUB_TOKEN in described:
        hub_user = None if tokens is None else tokens.get(described[_HUB_TOKEN])
        if hub_user is None:
            raise Unavailable("the server has restarted: first use the Hub token in whose name this token was made")
        holder: User = JupyterHubUser(hub_user)
        return holder
    try:
        hub_user = await hub_auth.user_for_token(hub_auth.api_token, sync=False)
    except Exception as error:  # JupyterHub's client raises whatever its HTTP library does
        raise Unavailable("JupyterHub could not be asked what the server's user may do; try again") from error
    if hub_user is None:
        raise Unavailable("JupyterHub does not know the server's own token any more; restart the server")
    user: User = JupyterHubUser(hub_user)
    return user
