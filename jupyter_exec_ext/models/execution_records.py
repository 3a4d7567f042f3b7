"""Execution records: a request to run code and its result; `execution_details` has the parts of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import CodeError
from . import execution_display
from .execution_details import Approval, ErrorInfo, FileInfo, JSONObject, SpooledOutput, StateLoss, Truncation
from .mime_bundles import ImageContent, Save
from .model_content import MAX_IMAGE_BYTES, MAX_IMAGES, MAX_TEXT_BYTES, Content, to_content, to_text
from .plain_text import Ansi


class ExecutionState(str, Enum):
    """State of an execution; the transitions are in `engine.executions.lifecycle`."""

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
    SERVER_LOST = "server_lost"
    TOKEN_REVOKED = "token_revoked"

    __str__ = str.__str__  # `str` and f-strings show the value in every Python version

    @property
    def finished(self) -> bool:
        """True if this is a terminal state."""
        return self not in _OPEN_STATES


_OPEN_STATES = frozenset({ExecutionState.AWAITING_APPROVAL, ExecutionState.QUEUED, ExecutionState.RUNNING})


@dataclass(frozen=True, slots=True, repr=False)
class Execution:
    """One request to run code in a session, and its result.

    In a notebook it is shown as the cell's own output would be.

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
        Number of further files, which `files` does not name.
    session_state_preserved : bool or None
        Whether the session's variables are still there; None until the execution has finished.
    kernel_starts : int
        The session's `kernel_starts` when this execution ran.
    isolation : str
        That of its session.
    kernel_exit_code, kernel_signal
        End of the kernel process, as far as it is known.
    approval : Approval or None
        Where a person had to approve it.
    session_state_lost : StateLoss or None
        End of the session's kernel before this execution, while nothing ran. None where the variables of the
        execution before were there.
    late_bytes : int
        Size of the output that its code has written after its end. It is not among the outputs; the session's next
        execution has it, as far as that is kept.
    late_from : sequence of str
        The ids of earlier executions whose late output is among the outputs of this one.
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
    isolation: str = "none"
    kernel_exit_code: int | None = None
    kernel_signal: str | None = None
    approval: Approval | None = None
    session_state_lost: StateLoss | None = None
    late_bytes: int = 0
    late_from: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """True if the code ran to its end without an error."""
        return self.state is ExecutionState.OK

    def __repr__(self) -> str:
        return execution_display.summary(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows of it; pages of the code are in frames without scripts."""
        return {"text/plain": self.to_text(), "text/html": execution_display.as_html(self)}

    @property
    def value_text(self) -> str | None:
        """The last expression's value as its kernel writes it; None if there is none."""
        return execution_display.value_text(self)

    @property
    def text(self) -> str:
        """The value or, without one, what was printed; `to_text` has everything."""
        return execution_display.text(self)

    @property
    def images(self) -> list[ImageContent]:
        """The pictures that were shown, decoded, in order; each has a ``save``."""
        return execution_display.images(self)

    def raise_for_error(self) -> Execution:
        """Return this execution, if its code ran to its end without an error.

        Raises
        ------
        CodeError
            If it failed, was stopped, or has not ended; with its traceback as the message.
        """
        if self.ok:
            return self
        if not self.state.finished:
            raise CodeError(f"execution {self.id} has not ended: it is {self.state.value}", execution=self)
        raise CodeError(execution_display.failure_text(self), execution=self)

    @property
    def spooled(self) -> Sequence[SpooledOutput]:
        """The outputs beyond the cap that can be downloaded, by name."""
        return self.truncated.spooled if self.truncated is not None else ()

    def to_text(self, *, max_bytes: int = MAX_TEXT_BYTES, save: Save | None = None, ansi: Ansi = "remove") -> str:
        """Return what a language model can use of it: output, errors, why it was stopped, and the files it wrote.

        The text can always be encoded: characters that are not valid Unicode are replaced and counted in its last line.

        Parameters
        ----------
        max_bytes : int
            Of longer text, the head and the tail are kept, with a marker between them. In UTF-8.
        save : callable, optional
            Takes the MIME type and the content of a picture, page or data file, and returns where it has saved it,
            which is then in the text; without it, they are named by kind and size. `OutputDirectory` is one.
        ansi : {"remove", "keep"}
            Whether the text is as a terminal would show it in the end, without colours and overwritten progress bars,
            or keeps escape sequences, carriage returns and backspaces as the code wrote them.

        Returns
        -------
        str
            ``"(no output)"`` where there is nothing to tell.

        Raises
        ------
        ValueError
            For another word in `ansi`.
        """
        return to_text(self, max_bytes=max_bytes, save=save, ansi=ansi)

    def to_content(
        self,
        *,
        max_text_bytes: int = MAX_TEXT_BYTES,
        max_images: int = MAX_IMAGES,
        max_image_bytes: int = MAX_IMAGE_BYTES,
        save: Save | None = None,
        ansi: Ansi = "remove",
    ) -> list[Content]:
        """Return the same as `to_text`, with pictures as data at their places.

        Parameters
        ----------
        max_text_bytes : int
            Of all texts together.
        max_images : int
            Highest number of pictures; others are named by kind and size.
        max_image_bytes : int
            Highest size of each of them; a larger one is named, too.
        save : callable, optional
            As for `to_text`; pictures are then paths.
        ansi : {"remove", "keep"}
            As for `to_text`.

        Returns
        -------
        list of TextContent and ImageContent
            At least one.

        Raises
        ------
        ValueError
            For another word in `ansi`.
        """
        return to_content(
            self,
            max_text_bytes=max_text_bytes,
            max_images=max_images,
            max_image_bytes=max_image_bytes,
            save=save,
            ansi=ansi,
        )


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """Request to run code.

    Parameters
    ----------
    env : mapping
        Environment variables for this run alone. They may hold secrets, so no record has them.
    """

    code: str
    language: str | None = None
    timeout_seconds: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    allow_input: bool = False
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def sources(self) -> Sequence[str]:
        """All code that the request has the kernel run."""
        return [self.code]


@dataclass(frozen=True, slots=True)
class JupyterExecutionRequest(ExecutionRequest):
    """Request to run code as a client of Jupyter's own protocol can make it, with an ``execute_request``.

    Parameters
    ----------
    store_history : bool
        Whether the code counts, and is in the kernel's history.
    user_expressions : mapping
        Expressions by name, which the kernel evaluates when the code has ended without an error.
    is_silent : bool
        Whether clients are not shown the code and its value. Its record has them.
    stops_on_error : bool
        Whether an error ends the requests of this client that wait in the session.
    header : mapping
        The header of the client's message.
    """

    store_history: bool = True
    user_expressions: Mapping[str, str] = field(default_factory=dict)
    is_silent: bool = False
    stops_on_error: bool = True
    header: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Sequence[str]:
        """All code that the request has the kernel run."""
        return [self.code, *self.user_expressions.values()]


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """Answer of a person to an execution that waits for approval.

    Parameters
    ----------
    approve : bool
        False to reject it.
    code : str or None
        Code to run in the place of the code that was sent.
    reason : str
        For the caller to read.
    for_session : bool
        Whether the approval covers later code of the same kinds in the session.
    """

    approve: bool
    code: str | None = None
    reason: str = ""
    for_session: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Key from a caller, with which a repeated request does no more than one.

    Parameters
    ----------
    key : str
        The caller's own; counts within one session of one principal.
    request_hash : str
        Of the whole request, to tell a repetition from a mistake.
    of_fresh_session : bool
        It came with a run in a session of its own, and counts among all of those of one principal.
    """

    key: str
    request_hash: str
    of_fresh_session: bool = False


@dataclass(frozen=True, slots=True)
class StoredExecution:
    """An execution's record, and whose it is."""

    owner: str
    execution: Execution


@dataclass(frozen=True, slots=True)
class FoundExecution:
    """An execution that a search has found, without its outputs, and where it ran.

    Parameters
    ----------
    owner : str
        The principal of its session.
    token_name : str
        Name of the token whose session it is; empty for the server's owner.
    """

    execution: Execution
    owner: str = ""
    session_name: str = ""
    token_name: str = ""
