"""Untrusted text on its way to a terminal: a filter for the output of code, and escapes for names and code.

Code, kernels and servers choose much of the commands' output. A terminal obeys escape sequences in it: they move the
cursor over earlier lines, set titles, write to the clipboard, or make the terminal type. `EscapeFilter` lets colours
pass and removes all others. Files and pipes get the output unchanged.

A person decides about names and code, so `printable` and `visible` show them exactly. Control characters can hide a
line. Some letters are invisible, or reverse the direction of writing. All of them are shown as escapes.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

_RESET = "\x1b[0m"
# Longest parameters of a sequence. A longer sequence is shown, since it could hide any text.
_MAX_PARAMETERS = 64
# Tab and line feed pass, and so do backspace and carriage return: progress bars need them, and they stay in their line.
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CSI = r"(?:\x1b\[|\x9b)"
# The first alternative that matches wins: colours before other CSI sequences, single control characters last.
_SEQUENCE = re.compile(
    rf"{_CSI}(?P<colours>[0-9;:]{{0,{_MAX_PARAMETERS}}})m"
    rf"|{_CSI}[\x20-\x3f]{{0,{_MAX_PARAMETERS}}}[\x40-\x7e]?"
    r"|(?P<string>\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"  # titles, hyperlinks, clipboard, pictures; up to their terminator
    rf"|\x1b[\x20-\x2f]{{0,{_MAX_PARAMETERS}}}[\x30-\x7e]?"
    rf"|{_CONTROL.pattern}"
)
_UNFINISHED = re.compile(
    rf"(?:{_CSI}[\x20-\x3f]{{0,{_MAX_PARAMETERS}}}|\x1b[\x20-\x2f]{{0,{_MAX_PARAMETERS}}})\Z"  # a later piece ends it
)
_STRING_END = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TERMINATORS = ("\x07", "\x9c", "\x1b\\")


class EscapeFilter:
    """Removes control characters and escape sequences, but for colours, from text that comes in pieces.

    A sequence may begin in one piece and end in another. Of an unfinished one a few characters are kept, or none.
    """

    def __init__(self) -> None:
        self._kept = ""
        self._in_string = False
        self._coloured = False

    def feed(self, text: str) -> str:
        """Return a piece of text without the sequences that are removed."""
        text, self._kept = self._kept + text, ""
        if not self._in_string and _CONTROL.search(text) is None:
            return text
        return "".join(self._shown(text))

    def _shown(self, text: str) -> Iterator[str]:
        position = 0
        while position < len(text):
            if self._in_string:
                position = self._end_string(text, position)
                continue
            match = _SEQUENCE.search(text, position)
            if match is None:
                yield text[position:]
                return
            yield text[position : match.start()]
            # Here the piece ends inside of a sequence. Its bounded parameters bound what is kept.
            if _UNFINISHED.match(text, match.start()):
                self._kept = text[match.start() :]
                return
            colours = match["colours"]
            if colours is not None:
                # Without parameters, or with 0 alone, the sequence is the reset itself.
                self._coloured = colours.strip("0") != ""
                yield f"\x1b[{colours}m"
            self._in_string = match["string"] is not None
            position = match.end()

    def _end_string(self, text: str, position: int) -> int:
        """Return where text goes on after a control string. Any control character ends one, such as a line's end."""
        end = _STRING_END.search(text, position)
        if end is None:
            return len(text)
        if text[end.start() :] == "\x1b":
            self._kept = "\x1b"
            return len(text)
        self._in_string = False
        return end.start() + next((len(mark) for mark in _TERMINATORS if text.startswith(mark, end.start())), 0)

    def drop_unfinished(self) -> None:
        """Drop an unfinished sequence."""
        self._kept, self._in_string = "", False

    def close(self) -> str:
        """Drop an unfinished sequence; return the reset of colours that are still on."""
        self.drop_unfinished()
        coloured, self._coloured = self._coloured, False
        return _RESET if coloured else ""


def without_escapes(text: str) -> str:
    """Return a whole text, filtered."""
    escapes = EscapeFilter()
    return escapes.feed(text) + escapes.close()


class TerminalStream:
    """A text stream to a terminal that filters each text that is written. All other attributes are the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._escapes = EscapeFilter()

    def write(self, text: str) -> int:
        """Write a text; its escape sequences must not continue in the next one."""
        self._stream.write(self._escapes.feed(text))
        # This program writes whole texts. So an unfinished sequence is hostile, and could swallow the next text.
        self._escapes.drop_unfinished()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def end_colours(self) -> None:
        """Reset colours that are still on."""
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._stream.write(self._escapes.close())
            self._stream.flush()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)


@contextmanager
def protected_terminal() -> Iterator[None]:
    """Filter standard output and standard error, if they are a terminal."""
    before = sys.stdout, sys.stderr
    protected = [_protected(stream) for stream in before]
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in protected)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in protected:
            if isinstance(stream, TerminalStream):
                stream.end_colours()


def _protected(stream: TextIO | None) -> TextIO | TerminalStream | None:
    is_terminal = stream is not None and stream.isatty()  # None: the process was started without one
    return TerminalStream(cast(TextIO, stream)) if is_terminal else stream


# Printable by their Unicode category, and still invisible.
_SHOW_NOTHING = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_GUTTER = 6
_LEAST_COLUMNS = 20
_SPACE, _ELLIPSIS = "  ", "\u2026"
_LEAST_CELL = 6


def printable(text: str) -> str:
    """Return a name, escaped if it has characters that a terminal would obey or not show."""
    return text if all(map(_is_visible, text)) else ascii(text)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the first row has the headings.

    On a terminal, cells are cut with an ellipsis so that a row fits; those of the first column, such as ids, never.
    Files and pipes get whole cells.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(_columns(row[column]) for row in cells) for column in range(len(cells[0]))]
    if sys.stdout.isatty():
        widths = _fitting(widths, shutil.get_terminal_size().columns)
    for row in cells:
        print(_SPACE.join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _fitting(widths: Sequence[int], columns: int) -> list[int]:
    """Narrow the widest columns, but the first one, until a row fits."""
    fitting = list(widths)
    while sum(fitting) + len(_SPACE) * (len(fitting) - 1) > columns and max(fitting[1:], default=0) > _LEAST_CELL:
        widest = max(range(1, len(fitting)), key=fitting.__getitem__)
        fitting[widest] -= 1
    return fitting


def _padded(cell: str, width: int) -> str:
    """Cut or pad a cell to a width."""
    while _columns(cell) > width:
        cell = cell.removesuffix(_ELLIPSIS)[:-1] + _ELLIPSIS
    return cell + " " * (width - _columns(cell))


def _columns(text: str) -> int:
    """Return how many columns a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


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
    room = None if columns is None else max(_LEAST_COLUMNS, columns - _GUTTER - 3)  # 3: the bar and its spaces
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
    if room is None or len(text) * 2 <= room:  # it fits even if all of its characters are wide
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
