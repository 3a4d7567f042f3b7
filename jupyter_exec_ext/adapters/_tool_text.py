"""Tool texts: name and description of the tool, and the answer for code that did not run."""

from __future__ import annotations

from dataclasses import dataclass

from ..models.model_content import Content, TextContent
from ..models.plain_text import TextCleaner

#: Name and description that a model reads.
TOOL_NAME = "execute_code"
TOOL_DESCRIPTION = """\
Run code in a Jupyter session and return what it prints and shows, including pictures, and any error.
Variables, imports and definitions are kept from one call to the next. The value of the last expression is shown."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """Code that the server did not run, for a reason that the model can act on.

    Parameters
    ----------
    reason : str
        Text for the model.
    session_lost : bool
        Whether the session had ended. The next run gets a fresh one.
    """

    reason: str
    session_lost: bool = False

    ok = False  # no field, since it never differs

    @classmethod
    def from_lost_session(cls, reason: str) -> NotRun:
        """Return the answer for code whose session had ended."""
        return cls(
            f"{reason}. The next run gets a fresh session: variables, imports and definitions are gone; "
            "run what is needed again.",
            session_lost=True,
        )

    def to_text(self) -> str:
        """Return the reason, marked as one."""
        return TextCleaner().clean(f"Not run: {self.reason}")

    def to_content(self) -> list[Content]:
        """Return the same, in the form of `Execution.to_content`."""
        return [TextContent(self.to_text())]
