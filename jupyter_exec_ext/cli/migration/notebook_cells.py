"""Python code of a notebook's cells: read, mask magics, and write back with all else unchanged. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ...protocol.languages import normalize_language

# Lines that only IPython understands.
_MAGIC = re.compile(r"\s*[!%?]|\s*[\w, \t]+=\s*[!%]|.*\?\s*$")
# The rest of a cell with one of these magics is Python.
_PYTHON_CELL = re.compile(r"\s*%%(?:time|timeit|capture|prun)\b")


class Notebook:
    """A notebook file.

    Raises
    ------
    ValueError
        If the text is no notebook of format 4.
    """

    def __init__(self, text: str) -> None:
        self._data = json.loads(text)
        cells = self._data.get("cells") if isinstance(self._data, dict) else None
        if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
            raise ValueError("it is no notebook of format 4")
        self._style = _style_of(text, self._data)
        self._cells = [cell for cell in cells if cell.get("cell_type") == "code" and self._is_python]

    @property
    def _is_python(self) -> bool:
        metadata = self._data.get("metadata", {})
        named = [
            metadata.get(key, {}).get(name) for key, name in (("kernelspec", "language"), ("language_info", "name"))
        ]
        return all(normalize_language(str(language)) == "python" for language in named if language)

    @property
    def sources(self) -> list[str]:
        """The code of its cells."""
        return [
            source if isinstance(source := cell.get("source", ""), str) else "".join(source) for cell in self._cells
        ]

    def with_sources(self, sources: Sequence[str]) -> str:
        """Return the notebook's text with other code in its cells."""
        for cell, before, source in zip(self._cells, self.sources, sources, strict=True):
            if source != before:
                as_text = isinstance(cell["source"], str)
                cell["source"] = source if as_text else source.splitlines(keepends=True)
        indent, ascii_only, end = self._style
        return json.dumps(self._data, indent=indent, ensure_ascii=ascii_only) + end


def mask_magics(source: str) -> str:
    """Return a cell's code with ``pass`` in place of each line that only IPython understands."""
    lines = source.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("%%") and not _PYTHON_CELL.match(first):
        return ""
    return "\n".join(map(_masked, lines))


def _masked(line: str) -> str:
    return f"{line[: len(line) - len(line.lstrip())]}pass" if _MAGIC.match(line) else line


def _style_of(text: str, data: Any) -> tuple[int | None, bool, str]:
    """Return indent, escaping and end of a notebook's JSON, by trial; Jupyter's own if none fits."""
    end = text[len(text.rstrip()) :]
    for indent in (1, 2, 4, None):
        for ascii_only in (False, True):
            if json.dumps(data, indent=indent, ensure_ascii=ascii_only) + end == text:
                return indent, ascii_only, end
    return 1, False, "\n"
