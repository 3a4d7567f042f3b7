"""Install lines of the pages: from a clone of the repository, and from a package index once the package is there.

`package_is_released` in ``docs/conf.py`` is the switch. While it is false, pages stay as they are. When it is true,
this Sphinx extension changes each page that it reads, except those for contributors. For readers on a code host,
``python -m tools.switch_install_lines`` changes the files themselves.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DISTRIBUTION = "jupyter-exec-ext"
#: Pages of people who work in a clone, by the beginning of their names.
FOR_CONTRIBUTORS = ("contributing/", "about/contributing")

_COMMAND = re.compile(r"\b(?:pip|pip3|pipx|uv tool) install\b[^\n`;&|]*")
_CLONE = re.compile(r"""(?<= )(?P<quote>['"]?)\.(?P<extras>\[[\w, -]+\])?(?P=quote)(?=\s|$)""")
# The words for a clone: at a sentence's beginning before other words or alone, and after other words.
_BEFORE_WORDS = re.compile(r"\bIn\s+a\s+clone\s+of\s+(?:this|the)\s+repository,\s+(\w)")
_ALONE = re.compile(r"\bIn\s+a\s+clone\s+of\s+(?:this|the)\s+repository(?=[\s:])")
_AFTER_WORDS = re.compile(r",?\s+in\s+a\s+clone\s+of\s+(?:this|the)\s+repository\b")
_PARAGRAPHS = re.compile(r"(\n{2,})")
_REPOSITORY = Path(__file__).parent.parent.parent.parent
_PATH = re.compile(r"(?<![\w./-])[\w-][\w.-]*(?:/[\w.-]+)+")


def take_package_from_index(text: str) -> str:
    """Return a text whose install lines name the package.

    Parameters
    ----------
    text : str
        Markdown. The words "in a clone of this repository" are left out in the paragraph of an install line, and in the
        one before it. A line that uses a file of the repository stays as it is.

    Returns
    -------
    str
    """
    parts = _PARAGRAPHS.split(text)
    named = [_COMMAND.sub(_name_package, part) for part in parts]
    for index in range(0, len(parts), 2):  # between two paragraphs is a part of empty lines
        if named[index] != parts[index]:
            for place in {max(index - 2, 0), index}:
                named[place] = _without_clone(named[place])
    return "".join(named)


def has_install_line_of_clone(text: str) -> bool:
    """Return whether a command in a text installs the package from the current directory."""
    return take_package_from_index(text) != text


def _name_package(command: re.Match[str]) -> str:
    if " -e " in command[0] or _needs_clone(_line_of(command)):
        return command[0]
    return _CLONE.sub(_named, command[0])


def _line_of(match: re.Match[str]) -> str:
    end = match.string.find("\n", match.end())
    return match.string[match.string.rfind("\n", 0, match.start()) + 1 : end if end >= 0 else None]


def _needs_clone(line: str) -> bool:
    """Return whether a line uses a file of the repository, which readers without a clone do not have."""
    return any((_REPOSITORY / path[0]).exists() for path in _PATH.finditer(line))


def _named(argument: re.Match[str]) -> str:
    name = DISTRIBUTION + (argument["extras"] or "")
    return f"'{name}'" if argument["extras"] else name


def _without_clone(paragraph: str) -> str:
    paragraph = _BEFORE_WORDS.sub(lambda match: match[1].upper(), paragraph)
    return _AFTER_WORDS.sub("", _ALONE.sub("Install the package", paragraph))


def setup(app: Any) -> dict[str, Any]:
    """Have Sphinx change the install lines of each page that it reads, if `package_is_released` is true."""

    def read(app: Any, page: str, source: list[str]) -> None:
        if app.config.package_is_released and not page.startswith(FOR_CONTRIBUTORS):
            source[0] = take_package_from_index(source[0])

    app.add_config_value("package_is_released", False, "env", [bool])
    app.connect("source-read", read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
