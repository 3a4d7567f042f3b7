"""Notebook file that ``jupyter exec run`` executes: its code cells, its kernel, and a copy with new outputs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from ..models import Execution
from ..protocol.notebook_format import notebook_output

# Tags that nbclient and Jupyter Book read, too.
_TAG_SKIPPED, _TAG_MAY_FAIL = "skip-execution", "raises-exception"


class NotebookFile:
    """A notebook of format 4, parsed from its text.

    Parameters
    ----------
    text : str
        The file's content.

    Attributes
    ----------
    has_run : bool
        Whether a cell has run, or there is none to run.

    Raises
    ------
    ValueError
        If it is no notebook of format 4; the message says what is wrong.
    """

    def __init__(self, text: str) -> None:
        # Plain JSON: importing nbformat takes longer than the rest of the command needs to start.
        self._data = _checked(json.loads(text))
        self._cells = [cell for cell in self._data["cells"] if _is_run(cell)]
        self.has_run = not self._cells
        for cell in self._cells:  # a cell that is not reached must not show the outputs of an earlier run
            cell["outputs"], cell["execution_count"] = [], None

    @property
    def sources(self) -> Sequence[str]:
        """Code of the cells that run, in order."""
        return tuple(map(_source, self._cells))

    @property
    def kernel_name(self) -> str | None:
        """Name of the notebook's kernelspec; None if it names none."""
        return _text(self._data["metadata"], "kernelspec", "name")

    @property
    def language(self) -> str | None:
        """Language of the notebook's code; None if it names none."""
        metadata = self._data["metadata"]
        return _text(metadata, "kernelspec", "language") or _text(metadata, "language_info", "name")

    def may_fail(self, index: int) -> bool:
        """Return whether the run goes on after an error of the cell with this index in `sources`."""
        return _TAG_MAY_FAIL in _tags(self._cells[index])

    def record(self, index: int, execution: Execution) -> None:
        """Set the outputs and the execution count of the cell with this index in `sources`."""
        self.has_run = True
        cell = self._cells[index]
        cell["outputs"] = [notebook_output(output) for output in execution.outputs]
        cell["execution_count"] = execution.execution_count

    def to_bytes(self) -> bytes:
        """Return the notebook as the content of a file."""
        if (self._data.get("nbformat_minor") or 0) >= 5:  # from which on each cell must have an id
            for cell in self._data["cells"]:
                cell.setdefault("id", uuid.uuid4().hex[:8])
        text = json.dumps(self._data, indent=1, ensure_ascii=False) + "\n"
        # Code can print half of a surrogate pair. UTF-8 has no bytes for it; its escape is valid in JSON.
        return text.encode("utf-8", "backslashreplace")


def _checked(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or "nbformat" not in data:
        raise ValueError("it is not a notebook: it has no 'nbformat'")
    if data["nbformat"] != 4:
        raise ValueError(f"its format is {data['nbformat']!r}, and 4 is needed; convert it with jupyter nbconvert")
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise ValueError("its 'cells' are not a list")
    if not isinstance(data.setdefault("metadata", {}), dict):
        raise ValueError("its 'metadata' are not an object")
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str) or not _has_source(cell):
            raise ValueError(f"its cell {number} has no valid 'cell_type' or 'source'")
        if not isinstance(cell.setdefault("metadata", {}), dict):
            raise ValueError(f"the 'metadata' of its cell {number} are not an object")
    return data


def _has_source(cell: dict[str, Any]) -> bool:
    source = cell.get("source")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])  # a text or a list of lines


def _tags(cell: dict[str, Any]) -> Sequence[Any]:
    tags = cell["metadata"].get("tags")
    return tags if isinstance(tags, list) else ()


def _is_run(cell: dict[str, Any]) -> bool:
    return cell["cell_type"] == "code" and bool(_source(cell).strip()) and _TAG_SKIPPED not in _tags(cell)


def _text(metadata: dict[str, Any], part: str, name: str) -> str | None:
    described = metadata.get(part)
    value = described.get(name) if isinstance(described, dict) else None
    return value if isinstance(value, str) and value else None
