"""Text that others have chosen, so that a terminal shows it and does nothing else.

A terminal obeys control characters: they move the cursor, and so can write over what was shown before, or hide a line.
Some letters show nothing, or turn the direction of writing round. They are all shown as escapes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

# Printable, as Unicode has it, and yet nothing to see.
_SHOW_NOTHING = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_GUTTER = 6
_LEAST_COLUMNS = 20


def printable(text: str) -> str:
    """Return a name as one that cannot steer a terminal."""
    return text if all(map(_is_seen, text)) else ascii(text)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first one being the heads."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def numbered(code: str, columns: int | None) -> str:
    """Return code with a number before each line, so that no line of it can pass for one of ours.

    Parameters
    ----------
    columns : int or None
        How wide the terminal is. Longer lines are broken, or the terminal would begin a line where the code wants it.
    """
    lines = []
    room = None if columns is None else max(_LEAST_COLUMNS, columns - _GUTTER - 3)
    for number, line in enumerate(code.removesuffix("\n").split("\n"), 1):
        for count, piece in enumerate(_pieces(visible(line.expandtabs()), room)):
            lines.append(f"{'' if count else number:>{_GUTTER}} | {piece}".rstrip())
    return "\n".join(lines)


def visible(text: str) -> str:
    """Return text with escapes in place of what cannot be seen."""
    return "".join(char if _is_seen(char) else char.encode("unicode_escape").decode() for char in text)


def _is_seen(char: str) -> bool:
    return char.isprintable() and char not in _SHOW_NOTHING


def _pieces(text: str, room: int | None) -> Iterator[str]:
    """Cut a line into what fits; a character that might take two columns is counted as two."""
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
    """Return names and values, a pair a line."""
    return "\n".join(f"{name:<12} {printable(value)}" for name, value in pairs)
