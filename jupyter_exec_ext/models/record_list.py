"""List of records with a table as its `repr` and its HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from .checkpoint_records import Checkpoint
from .execution_details import FileInfo
from .execution_records import Execution, FoundExecution
from .session_records import KernelSpecInfo, Session
from .token_and_audit_records import Token

T = TypeVar("T")
_MAX_CELL_CHARS = 48
_MAX_ROWS = 60

Columns = dict[str, Callable[[Any], object]]
# The plural, for an empty list, and the columns of each kind of record.
_TABLES: dict[type, tuple[str, Columns]] = {
    Session: (
        "sessions",
        {
            "id": lambda one: one.id,
            "name": lambda one: one.name,
            "kernel": lambda one: one.kernel_name,
            "state": lambda one: one.state,
            "last activity": lambda one: _moment(one.last_activity_at),
        },
    ),
    Execution: (
        "executions",
        {
            "id": lambda one: one.id,
            "state": lambda one: one.state,
            "created": lambda one: _moment(one.created_at),
            "code": lambda one: one.code,
        },
    ),
    FoundExecution: (
        "executions",
        {
            "id": lambda one: one.execution.id,
            "session": lambda one: one.session_name or one.execution.session_id,
            "created": lambda one: _moment(one.execution.created_at),
            "code": lambda one: one.execution.code,
        },
    ),
    FileInfo: (
        "files",
        {
            "path": lambda one: one.path,
            "bytes": lambda one: f"{one.size_bytes:,}",
            "changed": lambda one: _moment(one.mtime),
        },
    ),
    Token: (
        "tokens",
        {
            "id": lambda one: one.id,
            "name": lambda one: one.name,
            "policy": lambda one: one.policy,
            "active": lambda one: "yes" if one.active else "no",
            "expires": lambda one: _moment(one.expires_at),
        },
    ),
    Checkpoint: (
        "checkpoints",
        {
            "id": lambda one: one.id,
            "name": lambda one: one.name,
            "created": lambda one: _moment(one.created_at),
            "MB": lambda one: "" if one.memory_bytes is None else f"{one.memory_bytes / 1e6:,.0f}",
        },
    ),
    KernelSpecInfo: (
        "kernelspecs",
        {
            "name": lambda one: one.name,
            "title": lambda one: one.display_name,
            "language": lambda one: one.language,
            "isolation": lambda one: one.isolation,
        },
    ),
}


class RecordList(list[T], Generic[T]):
    """List of records of one kind. Its `repr` is a table, and a notebook shows it as one.

    Parameters
    ----------
    kind : type
        Kind of the records, such as `Session`, `Execution` or `FileInfo`.
    records : sequence
        The records.
    """

    def __init__(self, kind: type[T], records: Sequence[T] = ()) -> None:
        super().__init__(records)
        self._kind = kind

    @property
    def _plural(self) -> str:
        return _TABLES[self._kind][0]

    @property
    def _columns(self) -> Columns:
        return _TABLES[self._kind][1]

    def _rows(self) -> list[list[str]]:
        return [[_cell(read(record)) for read in self._columns.values()] for record in self[:_MAX_ROWS]]

    @property
    def _end(self) -> str:
        return f"{len(self):,} {self._plural}" + (f", {_MAX_ROWS} of them shown" if len(self) > _MAX_ROWS else "")

    def __repr__(self) -> str:
        if not self:
            return f"no {self._plural}"
        rows = [list(self._columns), *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, self._end])

    def _repr_html_(self) -> str:
        """Return the table as HTML, for a notebook."""
        if not self:
            return f"no {self._plural}"
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._columns)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{self._end}</p>"


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")


def _cell(value: object) -> str:
    """Return a value in one line: code, names and paths are other people's, and may hold anything."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"
