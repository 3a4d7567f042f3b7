"""The deployment's users, kept with the scoped tokens that they create, so that its authorizer can be asked later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jupyter_server.auth import User

_HUB_USER = "hub_user"
# What JupyterHub's authorizer looks at.
_HUB_FIELDS = ("kind", "name", "admin", "groups", "scopes")


def describe_user(user: Any) -> dict[str, Any]:
    """Return what it takes to ask about a user's rights later; empty for a user about whom nobody could be asked.

    Under JupyterHub, the Hub alone knows whether another user still may use the server, and tells only that user. The
    server's own user always may.
    """
    if not isinstance(user, User):
        return {}
    found: dict[str, Any] = {name: value for name, value in asdict(user).items() if value is not None}
    hub_user = getattr(user, _HUB_USER, None)
    if isinstance(hub_user, dict):
        if hub_user.get("name") != os.environ.get("JUPYTERHUB_USER"):
            return {}
        found[_HUB_USER] = {name: hub_user[name] for name in _HUB_FIELDS if name in hub_user}
    return found


def user_from(described: Mapping[str, Any]) -> User:
    """Return the user again, as far as an authorizer looks at it."""
    user = User(**{name: value for name, value in described.items() if name in User.__dataclass_fields__})
    if _HUB_USER in described:
        user.hub_user = dict(described[_HUB_USER])  # type: ignore[attr-defined]
    return user
