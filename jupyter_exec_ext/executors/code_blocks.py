"""What an executor takes and gives: AutoGen's records, as dataclasses that print as AutoGen's do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

# A fence of three or more backticks or tildes with an optional language, up to the same fence on a line of its own.
_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^\n`]*\r?\n(?P<code>.*?)^[ \t]*(?P=fence)[ \t]*\r?$",
    re.DOTALL | re.MULTILINE,
)


class _PrintsFields:
    """`str()` gives ``exit_code=0 output='…'``, as pydantic's models do."""

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))  # type: ignore[arg-type]


@dataclass
class CodeBlock(_PrintsFields):
    """Code to run, and its language.

    Parameters
    ----------
    code : str
        The source.
    language : str
        Such as ``"python"`` or ``"bash"``; empty for the kernel's own.
    """

    code: str
    language: str

    __str__ = _PrintsFields.__str__


@dataclass
class CodeResult(_PrintsFields):
    """What running code blocks gave.

    Parameters
    ----------
    exit_code : int
        0 if all of them ran to their end without an error, 1 otherwise.
    output : str
        Their text output, including what came before an error, and the error.
    """

    exit_code: int
    output: str

    __str__ = _PrintsFields.__str__


@dataclass
class IPythonCodeResult(CodeResult):
    """What running code blocks in a Jupyter kernel gave.

    Parameters
    ----------
    output_files : list of str
        Absolute paths of the images and pages that were displayed and saved.
    """

    output_files: list[str] = field(default_factory=list)

    __str__ = _PrintsFields.__str__


class MarkdownCodeExtractor:
    """Finds the fenced code blocks in a model's message."""

    def extract_code_blocks(self, message: str | Sequence[Mapping[str, object]] | None) -> list[CodeBlock]:
        """Return the code blocks of a message, in order.

        Parameters
        ----------
        message : str, sequence of content parts, or None
            Of a sequence, the parts with a ``text`` are read.
        """
        if message is None:
            return []
        if not isinstance(message, str):
            message = "\n".join(str(part["text"]) for part in message if part.get("text"))
        return [CodeBlock(match["code"], match["language"].lower()) for match in _FENCE.finditer(message)]
