"""Records of checkpoints: a checkpoint, its hindrances, and its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Something of a kernel that a checkpoint does not take along.

    Parameters
    ----------
    kind : str
        ``thread``, ``native threads``, ``child process``, ``connection``, ``pipe``, ``database``, ``shared memory``,
        ``asyncio task``, ``timer`` or ``graphics processor``.
    name : str
        Name of it, such as a thread's; given by the code.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a session, to which it can go back.

    Parameters
    ----------
    id : str
        Id of the checkpoint.
    session_id : str
        The session.
    name : str
        Name that the caller has given it; empty without one.
    created_at : str
        In UTC.
    automatic : bool
        Whether the server has made it before a run, as the session's `auto_checkpoint` demands.
    after : str or None
        Id of the last execution before it; None if there was none.
    files : bool
        Whether it has the files of the session's working directory, too.
    lost : sequence of Hindrance
        What it does not have, since it was made with ``force``.
    memory_bytes : int or None
        Memory that the checkpoint takes beside the session's; None if that is unknown.
    """

    id: str
    session_id: str
    name: str
    created_at: str
    automatic: bool = False
    after: str | None = None
    files: bool = False
    lost: Sequence[Hindrance] = ()
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """Something that has happened with a checkpoint, as the change feed sends it.

    Parameters
    ----------
    session_id : str
        The session: that of the checkpoint or, for ``branched``, the new one.
    checkpoint_id, name : str
        Id and name of the checkpoint.
    automatic : bool
        As in the `Checkpoint`.
    branch_of : str or None
        For ``branched``, the session of the checkpoint; None otherwise.
    """

    session_id: str
    checkpoint_id: str
    name: str
    automatic: bool = False
    branch_of: str | None = None
