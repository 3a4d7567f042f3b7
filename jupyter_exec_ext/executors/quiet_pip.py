"""Quiet pip: adds ``-qq`` to pip installs, since a model needs no log of a successful install."""

from __future__ import annotations

import io
import re
import tokenize

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
            if token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE"
        )
    except (tokenize.TokenError, SyntaxError):
        return frozenset(range(1, code.count("\n") + 2))
