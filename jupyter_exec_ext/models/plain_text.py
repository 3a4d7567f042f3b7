"""Plain text of terminal output: cursor moves applied, escapes removed, always valid Unicode. Pure.

`cli.terminal_text` filters text that goes to a terminal; this module does the terminal's part for readers without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

#: Treatment of escape sequences: applied and removed, or kept with everything else as the code wrote it.
Ansi = Literal["remove", "keep"]

# Moves of the cursor that programs use for progress bars: up, down, right, left, lines, column, and erasing a line.
_MOVE = r"\x1b\[\d{0,4}[A-GK]"
# An unterminated one ends at the next control character, so it cannot hide the rest of the text.
_STRING = r"\x1b[\]PX^_][^\x00-\x1f\x7f\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, hyperlinks, clipboard
_CSI = r"(?:\x1b\[[0-?]*|\x9b[0-?]+)[ -/]*[@-~]"
_SHORT = r"\x1b[ -/]*[0-~]?"
_SEQUENCE = re.compile(f"{_STRING}|{_CSI}|{_SHORT}")
# What is longer than this is no colour that a program writes.
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,30}m")
# All but tab, line feed and escape, with which the colours begin.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
# All that changes no line: colours, titles, modes, bells, and sequences that nothing is known of.
_INERT = re.compile(rf"(?!{_MOVE})(?:{_STRING}|{_CSI}|{_SHORT}|[\x00\x07\x0e\x0f\x7f])")
_TOKEN = re.compile(r"\r|\x08|\x1b\[(?P<count>\d{0,4})(?P<move>[A-GK])")
_NEEDS_TERMINAL = re.compile("[\x00\x07\x08\r\x0e\x0f\x1b\x7f\x9b]")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: A terminal's size: the cursor reaches no further to the right by itself, and no earlier lines. Without the first
#: bound, a few bytes (ESC[9999C) would become a line of 9,999 blanks.
_COLUMNS, _LINES = 200, 100


def strip_ansi(text: str) -> str:
    """Return `text` without ANSI escape sequences."""
    return _SEQUENCE.sub("", text) if "\x1b" in text or "\x9b" in text else text


def keep_colours(text: str) -> str:
    """Return `text` without escape sequences but colours, and without controls but line feeds and tabs."""
    colours = _SEQUENCE.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text)
    return _CONTROL.sub("", colours)


def as_terminal_shows(text: str) -> str:
    """Return the lines that a terminal shows once all of `text` has been written to it.

    A carriage return or a backspace goes back in the line, and what follows is written over what was there. Time and
    memory grow with the length of the text, whatever is in it.
    """
    if _NEEDS_TERMINAL.search(text) is None:
        return text
    # Line ends of Windows move no cursor, so a text with them alone needs no screen.
    text = _INERT.sub("", text.replace("\r\n", "\n"))
    if _TOKEN.search(text) is None:
        return text
    screen = _Screen()
    for line in text.split("\n"):
        screen.write_line(line)
    return str(screen)


class _Screen:
    """Lines of text and a cursor."""

    def __init__(self) -> None:
        self._rows: list[str | list[str]] = []  # a row is a list of characters once it was written over
        self._row = 0
        self._column = 0

    def __str__(self) -> str:
        return "\n".join(row if isinstance(row, str) else "".join(row).rstrip(" ") for row in self._rows)

    def write_line(self, line: str) -> None:
        """Write a text, and set the cursor on the beginning of the next line."""
        if self._row == len(self._rows):
            self._rows.append("")
            if _TOKEN.search(line) is None:
                self._rows[-1] = line
                line = ""
        position = 0
        for token in _TOKEN.finditer(line):
            self._put(line[position : token.start()])
            self._move(token)
            position = token.end()
        self._put(line[position:])
        self._row += 1
        self._column = 0

    def _cells(self) -> list[str]:
        row = self._rows[self._row]
        if isinstance(row, str):
            row = self._rows[self._row] = list(row)
        return row

    def _put(self, text: str) -> None:
        if not text:
            return
        cells = self._cells()
        cells.extend(" " * (self._column - len(cells)))
        cells[self._column : self._column + len(text)] = text
        self._column += len(text)

    def _move(self, token: re.Match[str]) -> None:
        if token["move"] is None:
            self._column = 0 if token[0] == "\r" else max(0, self._column - 1)
            return
        move, count = token["move"], int(token["count"] or 0)
        if move == "K":
            self._erase(count)
        elif move in "AF":
            self._row = max(self._row - max(1, count), len(self._rows) - _LINES, 0)
        elif move in "BE":
            self._row = min(self._row + max(1, count), len(self._rows) - 1)
        else:
            change = {"C": max(1, count), "D": -max(1, count), "G": max(1, count) - 1 - self._column}[move]
            self._column = max(0, min(self._column + change, max(self._column, _COLUMNS)))
        if move in "EF":
            self._column = 0

    def _erase(self, part: int) -> None:
        cells = self._cells()
        if part in (0, 2):
            del cells[self._column :]
        if part in (1, 2):
            erased = min(self._column + 1, len(cells))
            cells[:erased] = " " * erased


class TextCleaner:
    """Makes texts fit for a model, and counts what it had to replace.

    Parameters
    ----------
    ansi : {"remove", "keep"}
        Whether the text is as a terminal shows it, or as the code wrote it.

    Raises
    ------
    ValueError
        For another word than these.
    """

    def __init__(self, ansi: Ansi = "remove") -> None:
        if ansi not in ("remove", "keep"):
            raise ValueError(f"ansi must be 'remove' or 'keep', not {ansi!r}")
        self._keeps = ansi == "keep"
        self._replaced = 0

    def clean(self, text: str) -> str:
        """Return a text that can be encoded, with characters that are none replaced by U+FFFD."""
        if not text.isascii():
            text, count = _SURROGATE.subn("\ufffd", text)
            self._replaced += count
        return text if self._keeps else as_terminal_shows(text)

    @property
    def note(self) -> str:
        """The line that says how much was replaced; empty if nothing was."""
        if not self._replaced:
            return ""
        what = "character that is" if self._replaced == 1 else "characters that are"
        return f"Replaced: {self._replaced:,} {what} not valid Unicode"


# --- repeated lines of tracebacks: an endless recursion is its first and last frames, and a count ---

# So many times a group of lines has to stand there before it is folded.
_LEAST_TIMES = 5
# Lines of a group: the frames of one round of a recursion. Equal lines that are looked at to find it. Both bounds keep
# the time linear in the length of the text.
_MAX_GROUP_LINES, _MAX_GUESSES = 400, 6


def fold_repeats(text: str) -> str:
    """Return a traceback with groups of lines that follow each other many times shown at the first and last time.

    Parameters
    ----------
    text : str
        Of any language: only whole lines are compared.
    """
    lines = text.split("\n")
    return "\n".join(_folded(lines)) if len(lines) > _LEAST_TIMES else text


def _folded(lines: Sequence[str]) -> Iterator[str]:
    following = _next_equal_lines(lines)
    position = 0
    while position < len(lines):
        size, times = _group_at(lines, following, position)
        if times < _LEAST_TIMES:
            yield lines[position]
            position += 1
            continue
        group = lines[position : position + size]
        yield from group
        which = "line above was" if size == 1 else f"{size} lines above were"
        yield f"[... the {which} repeated {times - 2:,} more times ...]"
        yield from group
        position += size * times


def _next_equal_lines(lines: Sequence[str]) -> list[int]:
    """Return where each line stands again; the length of all where it does not."""
    following, last_seen = [0] * len(lines), dict[str, int]()
    for position in range(len(lines) - 1, -1, -1):
        following[position] = last_seen.get(lines[position], len(lines))
        last_seen[lines[position]] = position
    return following


def _group_at(lines: Sequence[str], following: Sequence[int], position: int) -> tuple[int, int]:
    """Return how many lines from here on follow each other again and again, and how many times they stand there."""
    again = position
    for _ in range(_MAX_GUESSES):
        again = following[again]
        size = again - position
        if again >= len(lines) or size > _MAX_GROUP_LINES:
            break
        group, times = lines[position:again], 1
        while lines[position + times * size : position + (times + 1) * size] == group:
            times += 1
        if times >= _LEAST_TIMES:
            return size, times
    return 0, 0
