"""Events: the numbered items of an execution's log, and the changes in the change feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from .checkpoint_records import CheckpointEvent
from .execution_details import FileInfo, JSONObject, Truncation
from .execution_records import Execution, ExecutionState
from .session_records import Session
from .token_and_audit_records import KernelGrant, Token


# Keyword-only, so that subclasses can have fields without defaults after these.
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEvent:
    """One numbered item of an execution's log.

    Parameters
    ----------
    seq : int
        Starts at 1 and has no gaps; 0 until the log has numbered the event.
    at : str
        In UTC ISO 8601.
    late_from : str or None
        The earlier execution of the session whose code has written this after its end; None for the execution's own
        output. In JSON, ``"late": true`` and ``"from"``.
    """

    type: ClassVar[str]
    seq: int = 0
    at: str = ""
    late_from: str | None = None

    @property
    def late(self) -> bool:
        """True for output of an earlier execution, which had ended when it came."""
        return self.late_from is not None


@dataclass(frozen=True, slots=True)
class StateEvent(OutputEvent):
    """The execution entered a state that is not its last."""

    type: ClassVar[str] = "state"
    state: ExecutionState


@dataclass(frozen=True, slots=True)
class StreamEvent(OutputEvent):
    """Text written to a stream.

    Parameters
    ----------
    name : str
        ``stdout`` or ``stderr``.
    """

    type: ClassVar[str] = "stream"
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class DisplayEvent(OutputEvent):
    """A MIME bundle to show.

    Parameters
    ----------
    data, metadata : dict
        By MIME type.
    update : bool
        True if it takes the place of earlier ones with the same `display_id`.
    """

    type: ClassVar[str] = "display"
    data: JSONObject
    metadata: JSONObject
    display_id: str | None = None
    update: bool = False


@dataclass(frozen=True, slots=True)
class ResultEvent(OutputEvent):
    """The value of the last expression, as a MIME bundle."""

    type: ClassVar[str] = "result"
    data: JSONObject
    metadata: JSONObject
    execution_count: int | None = None


@dataclass(frozen=True, slots=True)
class ClearEvent(OutputEvent):
    """The code cleared its output.

    Parameters
    ----------
    wait : bool
        True if the output stays until the next output comes.
    """

    type: ClassVar[str] = "clear"
    wait: bool = False


@dataclass(frozen=True, slots=True)
class ErrorEvent(OutputEvent):
    """The code raised an exception.

    Parameters
    ----------
    traceback : str
        Without escape sequences.
    coloured_traceback : str
        The same with the colours of a terminal, as escape sequences ``ESC [ ... m``, and with no other control
        characters than line feeds and tabs. Empty where the traceback has no colours or is long.
    """

    type: ClassVar[str] = "error"
    name: str
    value: str
    traceback: str = ""
    coloured_traceback: str = ""


@dataclass(frozen=True, slots=True)
class InputRequestEvent(OutputEvent):
    """The code called ``input()`` or ``getpass()`` and waits for an answer.

    Parameters
    ----------
    password : bool
        True for ``getpass()``: do not show the answer.
    """

    type: ClassVar[str] = "input_request"
    prompt: str
    password: bool = False


@dataclass(frozen=True, slots=True)
class UnresponsiveEvent(OutputEvent):
    """The kernel runs code and does not answer any more: it is hung. Busy code is never reported.

    Parameters
    ----------
    reason : str
        ``"stopped"`` where the process itself is stopped. ``"not answering"`` otherwise, such as in native code that
        holds Python's interpreter lock.
    """

    type: ClassVar[str] = "unresponsive"
    reason: str


@dataclass(frozen=True, slots=True)
class ResponsiveEvent(OutputEvent):
    """A kernel that was unresponsive answers again."""

    type: ClassVar[str] = "responsive"


@dataclass(frozen=True, slots=True)
class SessionStateLostEvent(OutputEvent):
    """The session's kernel had ended while nothing ran, so this code runs in a fresh one: variables are gone.

    Parameters
    ----------
    reason : str
        End of the kernel as a clause, such as ``"the kernel exited with code 3"``.
    kernel_exit_code, kernel_signal : int or None, str or None
        The same as a number and a name, where it is known.
    """

    type: ClassVar[str] = "session_state_lost"
    reason: str
    kernel_exit_code: int | None = None
    kernel_signal: str | None = None


@dataclass(frozen=True, slots=True)
class TruncatedEvent(OutputEvent):
    """Output was left out between the event before this one and the event after it.

    Parameters
    ----------
    truncated : Truncation
        The bytes that are missing there.
    """

    type: ClassVar[str] = "truncated"
    truncated: Truncation


@dataclass(frozen=True, slots=True)
class FilesEvent(OutputEvent):
    """Files are new or changed since the execution before.

    Parameters
    ----------
    omitted : int
        Number of further files, which are not named.
    """

    type: ClassVar[str] = "files"
    files: Sequence[FileInfo]
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class EndEvent(OutputEvent):
    """The last event: the finished record."""

    type: ClassVar[str] = "end"
    execution: Execution


@dataclass(frozen=True, slots=True)
class LateOutput:
    """Output of an execution that had ended already.

    Parameters
    ----------
    execution_id, session_id : str
        The execution whose code has written it, and its session.
    late_bytes : int
        Size of all late output of this execution so far, as in its record.
    events : sequence of OutputEvent
        Output that came while nothing ran in the session, as far as it is kept. The session's next execution begins
        with it. Of much output, the first events.
    """

    execution_id: str
    session_id: str
    late_bytes: int
    events: Sequence[OutputEvent] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has happened: a session, an execution, a token or a grant as it is now, or another event.

    One field is set, which tells what has happened; none is set in a reset.

    Parameters
    ----------
    id : str
        Cursor of the feed: a reader resumes after it.
    execution : Execution or None
        Without its outputs, and of long code the beginning.
    late_output : LateOutput or None
        Output of an execution that had ended.
    checkpointed : CheckpointEvent or None
        A session has a new checkpoint.
    restored : CheckpointEvent or None
        A session was restored to a checkpoint.
    branched : CheckpointEvent or None
        There is a new session with the state of a checkpoint.
    checkpoint_deleted : CheckpointEvent or None
        A checkpoint was deleted, has expired, or is lost. If its session has ended, only that is sent.
    """

    id: str
    session: Session | None = None
    execution: Execution | None = None
    token: Token | None = None
    late_output: LateOutput | None = None
    grant: KernelGrant | None = None
    checkpointed: CheckpointEvent | None = None
    restored: CheckpointEvent | None = None
    branched: CheckpointEvent | None = None
    checkpoint_deleted: CheckpointEvent | None = None

    @property
    def is_reset(self) -> bool:
        """True if changes may have been missed, so that everything has to be listed again."""
        return all(getattr(self, field.name) is None for field in fields(self) if field.name != "id")
