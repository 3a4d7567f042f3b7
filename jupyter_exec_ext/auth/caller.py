"""Whoever made a request, with what they may do already worked out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from .policy import Policy
from .scopes import ALL_SCOPES

OWNER = "owner"
TOKEN_PREFIX = "token:"
_policy_of = attrgetter("policy")


@dataclass(frozen=True, slots=True)
class Bound:
    """A policy that a caller's requests must keep to.

    Parameters
    ----------
    principal : str
        Whose sessions and executions count together against the policy's numbers: the caller's own or, for a token
        that another one has created, those of that other one and of all it has created.
    """

    principal: str
    policy: Policy

    def covers(self, principal: str) -> bool:
        """Whether what belongs to `principal` counts here."""
        return is_within(principal, self.principal)


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a request.

    Parameters
    ----------
    principal : str
        Who sessions and executions belong to. Everyone whom the deployment itself authenticates (its token, its
        cookie, its Hub login) is `OWNER`: such a caller has the server's user's rights anyway, and Jupyter Server
        invents a new user name for every token request. A scoped token is a principal of its own: ``token:`` and the
        ids from the token that the owner has created down to this one, with ``/`` between them.
    display_name : str
        For people and logs.
    scopes : frozenset of str
        What the caller may do.
    bounds : tuple of Bound
        The policies of a scoped token and of those above it; every one of them must agree. The owner has none.
    user : mapping
        The deployment's user, whom its authorizer is asked about; of a scoped token, the one who created it. Empty
        for a user about whom nobody could be asked later.
    """

    principal: str
    display_name: str = ""
    scopes: frozenset[str] = field(default=ALL_SCOPES)
    bounds: tuple[Bound, ...] = ()
    user: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the server."""
        return self.principal == OWNER

    @property
    def root(self) -> str:
        """The top-level token that the caller descends from, as a principal; the owner's own."""
        return self.principal.partition("/")[0]

    @property
    def token_id(self) -> str | None:
        """The id of the scoped token that was sent; None for the owner."""
        return None if self.is_owner else self.principal.removeprefix(TOKEN_PREFIX).rpartition("/")[2]

    @property
    def policies(self) -> Iterator[Policy]:
        """The policies, one by one."""
        return map(_policy_of, self.bounds)

    def may_see(self, principal: str) -> bool:
        """Whether what belongs to `principal` exists for this caller.

        The owner sees what agents do, and a token what the tokens do that it has created.
        """
        return self.is_owner or is_within(principal, self.principal)


def owner(display_name: str = "", user: Mapping[str, Any] | None = None) -> Caller:
    """Return the owner as a caller, with every scope."""
    return Caller(OWNER, display_name, user=user or {})


def token_principal(ids: tuple[str, ...]) -> str:
    """Return the principal of a token, from the ids of those above it and its own."""
    return TOKEN_PREFIX + "/".join(ids)


def is_within(principal: str, root: str) -> bool:
    """Whether `principal` is `root`, or a token that was created below it."""
    return principal == root or principal.startswith(root + "/")
