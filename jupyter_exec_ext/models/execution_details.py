"""Parts of an execution's result: error, truncation and spooled output, changed files, approval, loss of state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

JSONObject = dict[str, Any]


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
    """Output that the cap left out of an execution, in exact UTF-8 bytes of the dropped text or JSON.

    Parameters
    ----------
    max_output_bytes : int
        The cap that was in force.
    stdout_bytes, stderr_bytes, display_bytes, error_bytes : int
        Bytes dropped of each kind.
    display_count : int
        Number of display or result outputs that were dropped as a whole.
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
class FileInfo:
    """A file in a session's working directory.

    Parameters
    ----------
    path : str
        Relative to the working directory, with ``/`` between its parts.
    mtime : str
        When its content was last changed, in UTC ISO 8601.
    mime_type : str
        Type that its name suggests.
    sha256 : str or None
        Of its content, in hexadecimal; None where it was not worked out.
    """

    path: str
    size_bytes: int
    mtime: str
    mime_type: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class FileChange:
    """Text of a file before and after it was changed.

    Parameters
    ----------
    before : str or None
        None for a file that the change has made.
    """

    path: str
    before: str | None
    after: str


class Decision(str, Enum):
    """Outcome of an approval by a person."""

    APPROVED = "approved"
    EDITED = "edited"
    REJECTED = "rejected"
    TIMEOUT = "timeout"

    __str__ = str.__str__  # `str` and f-strings show the value in every Python version


@dataclass(frozen=True, slots=True)
class ApprovalFinding:
    """One reason why code waits for a person's approval.

    Parameters
    ----------
    kind : str
        A trigger of the policy, such as ``shell``, or ``import`` and a module's name. A person can approve a kind for a
        whole session. Empty where there is nothing that other code could share.
    why : str
        A clause, such as ``"it runs a shell command"``.
    line : int or None
        Number of the line, from 1; None if it is not about one line of the code that was sent.
    """

    kind: str
    why: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """Approval of an execution by a person, and its outcome.

    Parameters
    ----------
    why : str
        The first of the findings.
    expires_at : str
        End of the wait, in UTC ISO 8601.
    decision : Decision or None
        None while it waits.
    reason : str
        Remark of the person who decided.
    original_code : str or None
        Code as the caller sent it, if the person edited it.
    findings : sequence of ApprovalFinding
        Findings of the policies in the code as it was sent.
    approved_kinds : sequence of str
        Kinds of findings that the decision covers in the session's later executions.
    """

    why: str
    expires_at: str
    decision: Decision | None = None
    decided_by: str = ""
    decided_at: str | None = None
    reason: str = ""
    original_code: str | None = None
    findings: Sequence[ApprovalFinding] = ()
    approved_kinds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StateLoss:
    """End of a session's kernel, and of its variables, between two executions.

    Parameters
    ----------
    reason : str
        A clause, such as ``"the kernel exited with code 3"``.
    kernel_exit_code, kernel_signal
        End of the process, as far as it is known.
    """

    reason: str
    kernel_exit_code: int | None = None
    kernel_signal: str | None = None
