"""Code blocks and results as AutoGen's records, extraction of code blocks from messages, and quiet pip commands."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

# AutoGen's own pattern: an agent that moves here must find the same blocks in the same messages.
_BLOCK = re.compile(r"```[ \t]*(\w+)?[ \t]*\r?\n(.*?)\r?\n[ \t]*```", re.DOTALL)
#: System message of an agent that writes code for a stateful executor.
CODE_WRITER_SYSTEM_MESSAGE = """
You have been given coding capability to solve tasks using Python code in a stateful IPython kernel.
You are responsible for writing the code, and the user is responsible for executing the code.

When you write Python code, put the code in a markdown code block with the language set to Python.
For example:
```python
x = 3
```
You can use the variable `x` in subsequent code blocks.
```python
print(x)
```

Write code incrementally and leverage the statefulness of the kernel to avoid repeating code.
Import libraries in a separate code block.
Define a function or a class in a separate code block.
Run code that produces output in a separate code block.
Run code that involves expensive operations like download, upload, and call external APIs in a separate code block.

When your code produces an output, the output will be returned to you.
Because you have limited conversation memory, if your code creates an image,
the output will be a path to the image instead of the image itself."""


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


_IN_PYTHON = re.compile(r"^(\s*[!%]\s*(?:python3? -m )?pip3? install)\b")
_IN_SHELL = re.compile(r"^(\s*!?\s*(?:python3? -m )?pip3? install)\b")
_MAGIC = re.compile(r"^(\s*)[!%].*$", re.MULTILINE)
# AutoGen's names for shells.
_SHELL_LANGUAGES = frozenset({"bash", "shell", "sh", "pwsh", "powershell", "ps1"})
# pip still prints errors, so that the model sees why an install failed.
_QUIET = "-qq"


def quiet_pip(code: str, language: str) -> str:
    """Return code in which lines with ``!pip install`` (in a shell: ``pip install``) print errors only.

    Parameters
    ----------
    language : str
        The block's language. Code of other languages than Python and shells is returned unchanged, and so are lines
        inside of a string, and lines with ``-q`` or ``-v``.
    """
    name = language.strip().lower()
    if "pip" not in code:
        return code
    if name in _SHELL_LANGUAGES:
        pattern, strings = _IN_SHELL, frozenset[int]()
    elif name in ("", "unknown", "python", "python3", "py", "ipython"):
        pattern, strings = _IN_PYTHON, _lines_in_strings(code)
    else:
        return code
    lines = code.split("\n")
    return "\n".join(line if number in strings else _quiet(line, pattern) for number, line in enumerate(lines, 1))


def _quiet(line: str, pattern: re.Pattern[str]) -> str:
    found = pattern.match(line)
    if found is None or re.search(r"\s(-[qv]+|--quiet|--verbose)\b", line):
        return line
    return f"{found[1]} {_QUIET}{line[found.end() :]}"


def _lines_in_strings(code: str) -> frozenset[int]:
    """Return the numbers of lines that begin inside of a string, counted from 1; all lines if it is no Python."""
    if '"""' not in code and "'''" not in code:
        return frozenset()
    # Magics are no Python. Replacing one inside of a string does no harm, since only the string's extent matters.
    reader = io.StringIO(_MAGIC.sub(r"\1pass", code) + "\n").readline
    try:
        return frozenset(
            line
            for token in tokenize.generate_tokens(reader)
            for line in range(token.start[0] + 1, token.end[0] + 1)
            # From Python 3.12 on an f-string is several tokens.
            if token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE"
        )
    except (tokenize.TokenError, SyntaxError):
        return frozenset(range(1, code.count("\n") + 2))
