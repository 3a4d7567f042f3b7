"""Records of scoped tokens and of the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class Token:
    """A scoped token, as it is shown: without its secret.

    Parameters
    ----------
    principal : str
        Owner of the sessions that it creates: the ids of the tokens above it and its own.
    policy : str
        The name of its policy.
    limits : mapping
        Fields of the policy that the token narrows.
    created_by : str
        For people: the deployment's user, or the token above it.
    last_used_at : str or None
        Exact to a minute.
    revoked_at : str or None
        When it was revoked, itself or with a token above it.
    expired : bool
        Whether its time is over.
    """

    id: str
    principal: str
    name: str
    policy: str
    scopes: Sequence[str]
    created_at: str
    expires_at: str
    created_by: str = ""
    parent_id: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    last_used_at: str | None = None
    revoked_at: str | None = None
    expired: bool = False

    @property
    def active(self) -> bool:
        """True if the token is accepted, being neither revoked nor expired."""
        return self.revoked_at is None and not self.expired


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret: the only time that it is shown."""

    token: Token
    text: str = field(repr=False)  # no log or traceback shows the secret


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Request to create a token; None stands for the value of the server or of the caller's own token."""

    name: str
    policy: str | None = None
    scopes: Sequence[str] | None = None
    expires_in_seconds: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grant:
    """A link of a token's chain: what a token on the way from the owner down to it was given.

    Parameters
    ----------
    token_id : str
        Of the token that was given this.
    policy : str
        A policy's name.
    limits : mapping
        How the token narrows it.
    """

    token_id: str
    policy: str
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelGrant:
    """Grant of one running kernel to one scoped token, which may attach to it whatever the kernel's isolation.

    Parameters
    ----------
    kernel_id : str
        Kernel of a notebook or console.
    kernel_name : str
        Its kernelspec.
    name : str
        A name for lists, such as the notebook's.
    created_by : str
        For people: the deployment's user.
    expires_at : str or None
        None if it lasts until its token or its kernel ends.
    ended_reason : str or None
        One sentence, once it has ended.
    """

    id: str
    token_id: str
    kernel_id: str
    kernel_name: str
    name: str
    created_at: str
    created_by: str = ""
    expires_at: str | None = None
    ended_at: str | None = None
    ended_reason: str | None = None


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """Request to grant a running kernel to a token; without a time it lasts until one of them ends."""

    token_id: str
    kernel_id: str
    name: str = ""
    expires_in_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token, and what it takes to let its bearer in.

    Parameters
    ----------
    grants : sequence of Grant
        From the token that the owner created down to this one.
    user : mapping
        The deployment's user whose rights the token can never exceed.
    expires_at_seconds : float
        Since the epoch.
    hub_token : str
        The digest of the JupyterHub token in whose name it was created; empty without one.
    is_of_hub : bool
        Whether it stands for that Hub token itself, and has no secret of its own.
    """

    token: Token
    grants: Sequence[Grant]
    user: Mapping[str, Any]
    expires_at_seconds: float
    hub_token: str = ""
    is_of_hub: bool = False


class AuditKind(str, Enum):
    """Subject of an audit record."""

    SESSION = "session"
    EXECUTION = "execution"
    TOKEN = "token"
    GRANT = "grant"
    APPROVAL = "approval"
    DENIAL = "denial"
    FILE = "file"
    PORT = "port"
    NETWORK = "network"
    SECRET = "secret"
    SERVER = "server"
    TRAIL = "trail"

    __str__ = str.__str__  # `str` and f-strings show the value in every Python version


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One record of the audit trail: who did what, when, and to what.

    Parameters
    ----------
    seq : int
        Its number in the chain, from 1 without gaps.
    principal : str
        Whose doing it was; empty for a stranger and for the server itself.
    subject : str
        The id of the session, execution, token or grant, or the path that was asked for.
    data : mapping
        More, by kind and action, as the schemas in ``audit/schemas`` have it.
    previous, digest : str
        The digest of the record before, and this one's; see `audit.digest_chain`.
    """

    seq: int
    at: str
    kind: AuditKind
    action: str
    principal: str
    subject: str
    data: Mapping[str, Any]
    previous: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ChainEnds:
    """Ends of an audit trail: its first record, with the digest before it, and its last record."""

    first_seq: int
    first_previous: str
    last_seq: int
    last_digest: str
