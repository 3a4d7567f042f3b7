"""Records of the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class AuditKind(str, Enum):
    """What an audit record is about."""

    SESSION = "session"
    EXECUTION = "execution"
    TOKEN = "token"
    APPROVAL = "approval"
    DENIAL = "denial"
    FILE = "file"
    TRAIL = "trail"

    __str__ = str.__str__


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
        The id of the session, execution or token, or the path that was asked for.
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
    """Where an audit trail begins and ends: what comes before its first record, and its last."""

    first_seq: int
    first_previous: str
    last_seq: int
    last_digest: str
