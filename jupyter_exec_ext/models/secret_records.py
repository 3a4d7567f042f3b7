"""Records of secrets, which the egress proxy adds to requests of sessions; none of them shows a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of the server, without its value.

    Parameters
    ----------
    name : str
        Its name, which is also the environment variable with its placeholder.
    hosts : sequence of str
        Hosts that get the value, with ``:port`` unless it is 443.
    header : str
        The header that carries it, such as ``Authorization: Bearer {}``; ``{}`` stands for the value.
    created_at, changed_at : str
        When it was first set, and when it was set last, in UTC.
    """

    name: str
    hosts: Sequence[str]
    header: str
    created_at: str
    changed_at: str


@dataclass(frozen=True, slots=True)
class SecretRequest:
    """Request to set a secret, or to change an existing one.

    Parameters
    ----------
    value : str
        The new value.
    hosts : sequence of str, optional
        Hosts that get it; by default those that the secret has.
    header : str, optional
        The header that carries it; by default the one that the secret has.
    """

    value: str = field(repr=False)
    hosts: Sequence[str] | None = None
    header: str | None = None
