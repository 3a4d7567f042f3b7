"""Plain records shared by the server and the clients.

Everything here is a value: no I/O, standard library only. A session and an execution are replaced, never changed
in place, so a record that was handed out stays what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

JSONObject = dict[str, Any]


class SessionState(str, Enum):
    """Where a session is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    RESTARTING = "restarting"
    ENDED = "ended"

    __str__ = str.__str__


class ExecutionState(str, Enum):
    """Where an execution is in its life; the transitions are in `engine.lifecycle`."""

    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    RUNNING = "running"
    OK = "ok"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    KERNEL_DIED = "kernel_died"
    OOM_KILLED = "oom_killed"
    SERVER_RESTARTED = "server_restarted"
    TOKEN_REVOKED = "token_revoked"

    __str__ = str.__str__

    @property
    def finished(self) -> bool:
        """Whether this is a terminal state."""
        return self not in _OPEN_STATES


_OPEN_STATES = frozenset({ExecutionState.AWAITING_APPROVAL, ExecutionState.QUEUED, ExecutionState.RUNNING})


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An exception as the kernel reported it, or what stood in for one.

    Parameters
    ----------
    name : str
        The exception's class name, such as ``"ZeroDivisionError"``.
    value : str
        Its message.
    traceback : str
        The formatted traceback, free of ANSI escape sequences; empty where there is none.
    """

    name: str
    value: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class SpooledOutput:
    """A file with output that the cap left out of the record; it can be downloaded by its name.

    Parameters
    ----------
    name : str
        ``"stdout"`` or ``"stderr"`` for a whole stream; for a value that was shown, such as ``"display-1.png"``.
    size_bytes : int
        Of the file. A picture is itself there, not its base64.
    sha256 : str
        Of the file, in hexadecimal.
    complete : bool
        False where only the beginning was kept.
    """

    name: str
    mime_type: str
    size_bytes: int
    sha256: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Truncation:
    """What an execution's output cap left out, in exact UTF-8 bytes of the dropped text or JSON.

    Parameters
    ----------
    max_output_bytes : int
        The cap that was in force.
    stdout_bytes, stderr_bytes, display_bytes, error_bytes : int
        Bytes dropped of each kind.
    display_count : int
        How many display or result outputs were dropped as a whole.
    upstream : bool
        True where output between the kernel and the client may be missing that nobody counted: a server's rate limit
        dropped it, or it was under way when a connection was cut.
    spooled : sequence of SpooledOutput
        Files that hold what was left out: of a stream all of its text, of other outputs the values.
    unspooled_reason : str or None
        Why these files do not hold all that was left out; None if they do.
    """

    max_output_bytes: int
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    display_bytes: int = 0
    error_bytes: int = 0
    display_count: int = 0
    upstream: bool = False
    spooled: Sequence[SpooledOutput] = ()
    unspooled_reason: str | None = None

    @property
    def dropped_bytes(self) -> int:
        """All bytes dropped."""
        return self.stdout_bytes + self.stderr_bytes + self.display_bytes + self.error_bytes


@dataclass(frozen=True, slots=True)
class Session:
    """A kernel and its state, under our own id.

    Parameters
    ----------
    isolation : str
        What the kernel is kept from: ``none`` (it has the rights of the server's user), ``sandbox`` or ``remote``.
    kernel_starts : int
        How often a kernel was started for the session. When the number differs between two executions, the
        variables of the first were gone in the second.
    attached : bool
        The kernel is somebody else's, such as a notebook's: it was there before the session and stays when it ends.
    ended_reason : str or None
        One sentence, once `state` is ``ended``.
    """

    id: str
    owner: str
    kernel_name: str
    language: str
    state: SessionState
    created_at: str
    last_activity_at: str
    name: str = ""
    kernel_id: str | None = None
    kernel_starts: int = 0
    isolation: str = "none"
    idle_timeout_seconds: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attached: bool = False
    ended_at: str | None = None
    ended_reason: str | None = None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file in a session's working directory.

    Parameters
    ----------
    path : str
        Relative to the working directory, with ``/`` between its parts.
    mtime : str
        When its content was last changed, in UTC ISO 8601.
    mime_type : str
        What its name says about its kind.
    sha256 : str or None
        Of its content, in hexadecimal; None where it was not worked out.
    """

    path: str
    size_bytes: int
    mtime: str
    mime_type: str
    sha256: str | None = None


class Decision(str, Enum):
    """What became of an execution that a person had to approve."""

    APPROVED = "approved"
    EDITED = "edited"
    REJECTED = "rejected"
    TIMEOUT = "timeout"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Approval:
    """That a person had to approve an execution, and what became of it.

    Parameters
    ----------
    why : str
        What the policy found in the code.
    expires_at : str
        Until when it waits, in UTC ISO 8601.
    decision : Decision or None
        None while it waits.
    reason : str
        What the person who decided has to say about it.
    original_code : str or None
        What the caller had sent, where the person edited it.
    """

    why: str
    expires_at: str
    decision: Decision | None = None
    decided_by: str = ""
    decided_at: str | None = None
    reason: str = ""
    original_code: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A scoped token, as it is shown: without its secret.

    Parameters
    ----------
    principal : str
        Whom the sessions belong to that it creates: the ids of the tokens above it and its own.
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
        """Whether it lets anybody in."""
        return self.revoked_at is None and not self.expired


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret: the only time that it is shown."""

    token: Token
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Execution:
    """One request to run code in a session, and what came of it.

    Parameters
    ----------
    outputs : sequence of dict
        nbformat 4 outputs, with ``update_display_data`` and ``clear_output`` already applied.
    stdout, stderr : str
        The stream outputs of that name, joined.
    reason : str or None
        One sentence on why it ended as it did, where the state alone does not say.
    files : sequence of FileInfo
        The files in the session's working directory that are new or changed since the execution before.
    files_omitted : int
        How many more there are that `files` does not name.
    session_state_preserved : bool or None
        Whether the session's variables are still there; None until the execution has finished.
    kernel_starts : int
        The session's `kernel_starts` when this execution ran.
    kernel_exit_code, kernel_signal
        How the kernel process ended, where it did and where that is known.
    approval : Approval or None
        Where a person had to approve it.
    """

    id: str
    session_id: str
    state: ExecutionState
    code: str
    created_at: str
    language: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float | None = None
    allow_input: bool = False
    started_at: str | None = None
    finished_at: str | None = None
    execution_count: int | None = None
    stdout: str = ""
    stderr: str = ""
    outputs: Sequence[JSONObject] = ()
    error: ErrorInfo | None = None
    reason: str | None = None
    truncated: Truncation | None = None
    files: Sequence[FileInfo] = ()
    files_omitted: int = 0
    session_state_preserved: bool | None = None
    kernel_starts: int = 0
    kernel_exit_code: int | None = None
    kernel_signal: str | None = None
    approval: Approval | None = None

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end without an error."""
        return self.state is ExecutionState.OK

    @property
    def spooled(self) -> Sequence[SpooledOutput]:
        """The outputs beyond the cap that can be downloaded, by name."""
        return self.truncated.spooled if self.truncated is not None else ()


# --- output events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEvent:
    """One numbered item of an execution's log.

    `seq` starts at 1 and has no gaps; it is 0 until the log has numbered the event. `at` is UTC ISO 8601.
    """

    type: ClassVar[str]
    seq: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True)
class StateEvent(OutputEvent):
    """The execution entered a state that is not its last."""

    type: ClassVar[str] = "state"
    state: ExecutionState


@dataclass(frozen=True, slots=True)
class StreamEvent(OutputEvent):
    """Text written to ``stdout`` or ``stderr``."""

    type: ClassVar[str] = "stream"
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class DisplayEvent(OutputEvent):
    """A MIME bundle to show, or (`update`) to show in place of an earlier one with the same `display_id`."""

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
    """All output so far is void; with `wait`, only once the next output comes."""

    type: ClassVar[str] = "clear"
    wait: bool = False


@dataclass(frozen=True, slots=True)
class ErrorEvent(OutputEvent):
    """The code raised."""

    type: ClassVar[str] = "error"
    name: str
    value: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class InputRequestEvent(OutputEvent):
    """The code called ``input()`` or ``getpass()`` and waits for an answer."""

    type: ClassVar[str] = "input_request"
    prompt: str
    password: bool = False


@dataclass(frozen=True, slots=True)
class UnresponsiveEvent(OutputEvent):
    """The kernel runs code and does not answer any more: it is hung rather than busy.

    Parameters
    ----------
    reason : str
        ``"stopped"`` where the process itself is stopped, ``"not answering"`` otherwise.
    """

    type: ClassVar[str] = "unresponsive"
    reason: str


@dataclass(frozen=True, slots=True)
class ResponsiveEvent(OutputEvent):
    """A kernel that was unresponsive answers again."""

    type: ClassVar[str] = "responsive"


@dataclass(frozen=True, slots=True)
class TruncatedEvent(OutputEvent):
    """Output was left out between the event before this one and the event after it."""

    type: ClassVar[str] = "truncated"
    truncated: Truncation


@dataclass(frozen=True, slots=True)
class FilesEvent(OutputEvent):
    """Files are new or changed since the execution before; `omitted` more are not named."""

    type: ClassVar[str] = "files"
    files: Sequence[FileInfo]
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class EndEvent(OutputEvent):
    """The last event: the finished record."""

    type: ClassVar[str] = "end"
    execution: Execution


# --- requests ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a caller asks for when a session is created.

    Parameters
    ----------
    kernel_id : str or None
        A running kernel to attach to, instead of a kernel of its own; then there is no `kernel_name` and no `env`.
    """

    kernel_name: str | None = None
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    idle_timeout_seconds: float | None = None
    kernel_id: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """What a caller asks for when code is run."""

    code: str
    language: str | None = None
    timeout_seconds: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    allow_input: bool = False


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What a caller asks for when a token is created; None for what the server or the caller's own token has."""

    name: str
    policy: str | None = None
    scopes: Sequence[str] | None = None
    expires_in_seconds: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What a person says about an execution that waits for approval.

    Parameters
    ----------
    approve : bool
        False to reject it.
    code : str or None
        What is to run instead of what was asked for.
    reason : str
        For the caller to read.
    """

    approve: bool
    code: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KernelSpecInfo:
    """An installed kernelspec, as far as a caller needs to know it.

    Parameters
    ----------
    provisioner : str
        What starts its kernels.
    isolation : str
        What its kernels are kept from: ``none``, ``sandbox`` or ``remote``.
    """

    name: str
    display_name: str
    language: str
    provisioner: str = "local-provisioner"
    isolation: str = "none"


# --- what a store keeps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """What a caller sends so that a repeated request does no more than one.

    Parameters
    ----------
    key : str
        The caller's own; counts within one session of one principal.
    request_hash : str
        Of the whole request, to tell a repetition from a mistake.
    """

    key: str
    request_hash: str


@dataclass(frozen=True, slots=True)
class StoredExecution:
    """An execution's record, and whose it is."""

    owner: str
    execution: Execution


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
    """

    token: Token
    grants: Sequence[Grant]
    user: Mapping[str, Any]
    expires_at_seconds: float


# --- the audit trail ------------------------------------------------------------------------------------------------


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
        The digest of the record before, and this one's; see `wire.chain`.
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
