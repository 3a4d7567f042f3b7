"""Escaping of untrusted names and code, so that a terminal only shows them.

Control characters can move the cursor, overwrite earlier output, or hide a line. Some letters are invisible, or reverse
the direction of writing. All of them are shown as escapes. `escape_filter` filters the output of code instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

# Printable by their Unicode category, and still invisible.
_SHOW_NOTHING = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_GUTTER = 6
_LEAST_COLUMNS = 20


def printable(text: str) -> str:
    """Return a name, escaped if it has characters that a terminal would obey or not show."""
    return text if all(map(_is_visible, text)) else ascii(text)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the first row has the headings."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def numbered(code: str, columns: int | None) -> str:
    """Return code with a number before each line, so that none can imitate a line of this command.

    Parameters
    ----------
    code : str
        The code.
    columns : int or None
        Width of the terminal. Longer lines are broken here, since the terminal would break them at a place that the
        code chooses.
    """
    lines = []
    room = None if columns is None else max(_LEAST_COLUMNS, columns - _GUTTER - 3)
    for number, line in enumerate(code.removesuffix("\n").split("\n"), 1):
        for count, piece in enumerate(_pieces(visible(line.expandtabs()), room)):
            lines.append(f"{'' if count else number:>{_GUTTER}} | {piece}".rstrip())
    return "\n".join(lines)


def visible(text: str) -> str:
    """Return text with escapes for invisible characters."""
    return "".join(char if _is_visible(char) else char.encode("unicode_escape").decode() for char in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() and char not in _SHOW_NOTHING


def _pieces(text: str, room: int | None) -> Iterator[str]:
    """Cut a line into pieces that fit; characters of doubtful width count as two columns."""
    if room is None or len(text) * 2 <= room:
        yield text
        return
    start = used = 0
    for position, char in enumerate(text):
        width = 2 if unicodedata.east_asian_width(char) in "WFA" else 1
        if used + width > room:
            yield text[start:position]
            start, used = position, 0
        used += width
    yield text[start:]


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one pair a line."""
    return "\n".join(f"{name:<12} {printable(value)}" for name, value in pairs)
