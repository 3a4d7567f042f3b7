"""Code blocks and their results: dataclasses with the fields and the `str` of AutoGen's records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

# AutoGen's own pattern: an agent that moves here must find the same blocks in the same messages.
_BLOCK = re.compile(r"```[ \t]*(\w+)?[ \t]*\r?\n(.*?)\r?\n[ \t]*```", re.DOTALL)


@dataclass
class _AutoGenRecord:
    """`str()` gives ``exit_code=0 output='…'``, as pydantic's models do."""

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))


@dataclass
class CodeBlock(_AutoGenRecord):
    """Code to run, and its language.

    Parameters
    ----------
    code : str
        The source.
    language : str
        Its language, such as ``"python"`` or ``"bash"``; empty for the kernel's own.
    """

    code: str
    language: str


@dataclass
class CodeResult(_AutoGenRecord):
    """Result of code blocks.

    Parameters
    ----------
    exit_code : int
        0 if all of them ran to their end without an error, 1 otherwise.
    output : str
        Their text output, including output before an error, and the error.
    """

    exit_code: int
    output: str


@dataclass
class IPythonCodeResult(CodeResult):
    """Result of code blocks in a Jupyter kernel.

    Parameters
    ----------
    output_files : list of str
        Absolute paths of the images and pages that were displayed and saved.
    """

    output_files: list[str] = field(default_factory=list)


class MarkdownCodeExtractor:
    """Finds the fenced code blocks in a model's message, as AutoGen 0.2 does."""

    def extract_code_blocks(self, message: str | Sequence[Mapping[str, object]] | None) -> list[CodeBlock]:
        """Return the code blocks of a message, in order; the language of one that names none is guessed.

        Parameters
        ----------
        message : str, sequence of content parts, or None
                The message; of a sequence, the parts with a ``text`` are read.
        """
        if message is None:
            return []
        if not isinstance(message, str):
            message = "".join(str(part["text"]) if part.get("type") == "text" else "<image>" for part in message)
        return [CodeBlock(code, language or _guess_language(code)) for language, code in _BLOCK.findall(message)]


def _guess_language(code: str) -> str:
    if code.startswith(("python ", "pip", "python3 ")):
        return "sh"
    try:
        compile(code, "block", "exec")
    except (SyntaxError, ValueError):  # ValueError: a NUL, in some versions of Python
        return ""
    return "python"
