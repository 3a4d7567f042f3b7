"""Caller: the author of a request, with scopes and policies already determined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from .policy import Policy
from .scopes import ALL_SCOPES

OWNER = "owner"
TOKEN_PREFIX = "token:"
# Every request walks through its policies. `map` with this getter needs no Python frame for each.
_policy_of = attrgetter("policy")


@dataclass(frozen=True, slots=True)
class Bound:
    """A policy that binds a caller.

    Parameters
    ----------
    principal : str
        The principal whose sessions and executions count against the policy's limits, together with those of its
        descendants: the caller or, for a policy of a parent token, that parent.
    policy : Policy
        The limits.
    """

    principal: str
    policy: Policy

    def covers(self, principal: str) -> bool:
        """Return whether the sessions of `principal` count against the policy."""
        return is_within(principal, self.principal)


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a request.

    Parameters
    ----------
    principal : str
        The owner of sessions and executions. Each user whom the deployment authenticates (by its token, cookie or Hub
        login) is `OWNER`, because such a user has all rights of the server's user, and Jupyter Server invents a new
        user name for every request with a token. A scoped token is a principal of its own: ``token:`` and the ids from
        its top-level token down to itself, joined by ``/``.
    display_name : str
        A name for people and logs.
    scopes : frozenset of str
        The rights.
    bounds : tuple of Bound
        The policies of a scoped token and of its ancestors, which all apply. The owner has none.
    token_name : str
        The name of a scoped token; empty for the owner.
    user : mapping
        The deployment's user, for its authorizer; for a scoped token, the user who created it. Empty for a user whose
        rights cannot be checked later.
    hub_token : str
        The digest of the JupyterHub token in whose name the caller acts; empty without one.
    is_login : bool
        Whether that token is a person's login. Its end closes streams, and leaves the person's sessions and tokens.
    """

    principal: str
    display_name: str = ""
    scopes: frozenset[str] = field(default=ALL_SCOPES)
    bounds: tuple[Bound, ...] = ()
    user: Mapping[str, Any] = field(default_factory=dict)
    token_name: str = ""
    hub_token: str = ""
    is_login: bool = False

    @property
    def maker(self) -> str:
        """The digest of the Hub token with which the caller's sessions and tokens end; empty without one."""
        return "" if self.is_login else self.hub_token

    @property
    def is_owner(self) -> bool:
        """True if the caller is the owner of the server."""
        return self.principal == OWNER

    @property
    def root(self) -> str:
        """The principal of the caller's top-level token; the owner's own."""
        return self.principal.partition("/")[0]

    @property
    def token_id(self) -> str | None:
        """The id of the caller's scoped token; None for the owner."""
        return None if self.is_owner else self.principal.removeprefix(TOKEN_PREFIX).rpartition("/")[2]

    @property
    def policies(self) -> Iterator[Policy]:
        """The policies, one by one."""
        return map(_policy_of, self.bounds)

    def may_see(self, principal: str) -> bool:
        """Return whether the caller may see the sessions of `principal`, as the owner or an ancestor."""
        return self.is_owner or is_within(principal, self.principal)


def owner(display_name: str = "", user: Mapping[str, Any] | None = None) -> Caller:
    """Return the owner as a caller, with every scope."""
    return Caller(OWNER, display_name, user=user or {})


def token_principal(ids: tuple[str, ...]) -> str:
    """Return the principal of a token from the ids of its ancestors and its own."""
    return TOKEN_PREFIX + "/".join(ids)


def is_within(principal: str, root: str) -> bool:
    """Return whether `principal` is `root` or a descendant of it."""
    # The slash keeps `token:ab` from being an ancestor of `token:abc`.
    return principal == root or principal.startswith(root + "/")
