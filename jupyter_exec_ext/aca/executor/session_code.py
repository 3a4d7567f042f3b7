"""What an executor runs in an ACA session beside the user's code: entering its directory, and questions. Pure."""

from __future__ import annotations

import re

from ..protocol.addresses import DATA_DIRECTORY

_MARK = "_aca_session_entered"
#: Enters the directory that files are exchanged in, once in a kernel, where there is one. One statement, which shows
#: nothing and leaves no name behind: it stands above the first code of a session, so that this costs no request.
ENTER = (
    f'exec("import os, sys\\nif not hasattr(sys, {_MARK!r}):\\n sys.{_MARK} = True\\n'
    f' if os.path.isdir({DATA_DIRECTORY!r}): os.chdir({DATA_DIRECTORY!r})", {{}})'
)
#: Its value tells whether this is a kernel in which `ENTER` has run.
ASK_ENTERED = f'hasattr(__import__("sys"), {_MARK!r})'
#: Its value is a text with the names of all packages, one in a line. Of printed text the service keeps only the first.
ASK_PACKAGES = (
    r'"\n".join(sorted({d.metadata["Name"] for d in __import__("importlib.metadata").metadata.distributions()'
    r' if d.metadata["Name"]}))'
)
# What means something else below another line: cell magics, pasted prompts, code that is indented as a whole.
_FIRST_LINE = re.compile(r"\s*(?:%%|>>>|In ?\[)|(?:[ \t]*\r?\n)*[ \t]+\S")


def below_enter(code: str) -> str | None:
    """Return code with `ENTER` above it; None where that has to be run apart."""
    return None if _FIRST_LINE.match(code) else f"{ENTER}\n{code}"


def without_enter(traceback: str) -> str:
    """Return a traceback without the line of `ENTER`, which is not the user's."""
    return "".join(line for line in traceback.splitlines(keepends=True) if ENTER not in line)


def is_true(value: object) -> bool:
    """Whether the value of a question is ``True``, in whichever way the service writes it."""
    return value is True or value == "True"


def lines_of(value: object) -> set[str]:
    """Return the lines of a text that is a value, also where the service gives it quoted, as IPython shows it."""
    text = value if isinstance(value, str) else ""
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1].replace("\\n", "\n")
    return set(text.split())
