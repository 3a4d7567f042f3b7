"""The deployment's users, kept with the scoped tokens that they create, so that its authorizer can be asked later.

Under JupyterHub the Hub alone knows whether somebody may use a server, and tells only whoever has a token of that
user. The server itself has one of its own user. So tokens are created in that user's name alone, and where an
authorizer looks at users at all it is shown this user as the Hub describes it now.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jupyter_server.auth import AllowAllAuthorizer, User
from jupyter_server.base.handlers import APIHandler

from ..errors import Unavailable

_OF_THE_HUB = "hub"


def describe_user(user: Any) -> dict[str, Any]:
    """Return what it takes to ask about a user's rights later; empty for a user about whom nobody could be asked."""
    if not isinstance(user, User):
        return {}
    hub_user = getattr(user, "hub_user", None)
    if isinstance(hub_user, dict):
        return _describe_hub_user(hub_user)
    return {name: value for name, value in asdict(user).items() if value is not None}


def _describe_hub_user(hub_user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the server's own user, if it is this one, or an administrator who acts in that user's name."""
    server_user = os.environ.get("JUPYTERHUB_USER")
    if not server_user or hub_user.get("kind") != "user":  # a service may have the same name
        return {}
    if hub_user.get("name") != server_user and hub_user.get("admin") is not True:
        return {}
    return {"username": server_user, _OF_THE_HUB: True}


async def user_from(handler: APIHandler, described: Mapping[str, Any]) -> User:
    """Return the user again, as far as the authorizer looks at it.

    Raises
    ------
    Unavailable
        If the Hub does not say what the user may do.
    """
    if described.get(_OF_THE_HUB) and type(handler.authorizer) is not AllowAllAuthorizer:
        return await _present_hub_user(handler)
    return User(**{name: value for name, value in described.items() if name in User.__dataclass_fields__})


async def _present_hub_user(handler: APIHandler) -> User:
    from jupyterhub.singleuser.extension import JupyterHubUser

    hub_auth: Any = handler.identity_provider.hub_auth  # type: ignore[attr-defined]
    try:
        hub_user = await hub_auth.user_for_token(hub_auth.api_token, sync=False)
    except Exception as error:
        raise Unavailable("JupyterHub could not be asked what the server's user may do; try again") from error
    if hub_user is None:
        raise Unavailable("JupyterHub does not know the server's own token any more; restart the server")
    user: User = JupyterHubUser(hub_user)
    return user
