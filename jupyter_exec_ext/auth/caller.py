"""Whoever made a request, with what they may do already worked out."""

from __future__ import annotations

from dataclasses import dataclass, field

from .scopes import ALL_SCOPES

OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a request.

    Parameters
    ----------
    principal : str
        Who sessions and executions belong to. Everyone whom the deployment itself authenticates (its token, its
        cookie, its Hub login) is `OWNER`: such a caller has the server's user's rights anyway, and Jupyter Server
        invents a new user name for every token request.
    display_name : str
        For people and logs.
    scopes : frozenset of str
        What the caller may do.
    """

    principal: str
    display_name: str = ""
    scopes: frozenset[str] = field(default=ALL_SCOPES)

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the server."""
        return self.principal == OWNER

    def may_see(self, principal: str) -> bool:
        """Whether what belongs to `principal` exists for this caller; the owner sees what agents do."""
        return self.is_owner or self.principal == principal


def owner(display_name: str = "") -> Caller:
    """Return the owner as a caller, with every scope."""
    return Caller(OWNER, display_name)
