r"""Parser of large JSON in pieces, which never holds the interpreter lock for long.

``json.loads`` on 100 MB is one C call during which nothing else in the process runs. Here long string literals are cut
out first, by searching windows of at most a quarter of a megabyte, and decoded window by window; what is left of the
text is small and parsed as usual. Between windows other threads get their turn.

A window may end anywhere but inside a token: not inside an escape (``\n``, ``\u0041``), not inside a character of
several bytes, and not between the halves of a surrogate pair (``\ud83d\ude00``), which is one character only as long
as they stay together.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .strict_json import any_text, loads_lenient, only_escaped, parsed_bytes, utf8_size

PIECE_BYTES = 256 * 1024
_SHORT_BYTES = 64 * 1024
# Each window is copied, and most strings with escapes are short. So the first window is small.
_FIRST_WINDOW_BYTES = 256
_BACKSLASH = 0x5C
# Of a text without its long strings: parsing it holds the interpreter lock, for 0.1 s at most, and takes memory.
_MAX_SKELETON_BYTES = 8 * 1024 * 1024
_MAX_PARSED_BYTES = 48 * 1024 * 1024
_STR_OBJECT_BYTES = 80  # of a string beside its characters, at most
_MAX_KEY_BYTES = 1024 * 1024
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")

Take = Callable[[Iterable[str]], Any]
Buffer = bytes | bytearray


class TooComplexError(ValueError):
    """JSON with so many numbers, short strings or containers that parsing it would hold up everything else."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Stands for a value that was counted and is not kept, since no record could have it.

    Parameters
    ----------
    pieces : iterable of str
        Its text, read from the message anew each time; the message stays in memory as long as this does.
    """

    size_bytes: int
    pieces: Iterable[str] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"[... {self.size_bytes:,} bytes left out ...]"


class KeepUpTo:
    """A `take` that joins strings of at most `max_bytes` together, and leaves out what is more.

    Parameters
    ----------
    max_bytes : int
        Of their text in UTF-8.
    max_memory_bytes : int, optional
        Of the memory that they take, which is up to four times as much.
    """

    def __init__(self, max_bytes: int, max_memory_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._max_memory_bytes = 4 * max_bytes if max_memory_bytes is None else max_memory_bytes

    def __call__(self, pieces: Iterable[str]) -> Any:
        """Return the string, or what stands for it."""
        kept: list[str] = []
        size = characters = width = 0
        for piece in pieces:
            size += utf8_size(piece)
            characters += len(piece)
            width = max(width, _width(piece))
            if self._has_room(size, characters * width):
                kept.append(piece)
            else:
                # Counting goes on: the record names the exact size of what is left out.
                kept.clear()
        if not self._has_room(size, characters * width):
            return LeftOut(size, pieces)
        # The bounds hold for all strings of a message together.
        self._max_bytes -= size
        self._max_memory_bytes -= characters * width
        return "".join(kept)

    def _has_room(self, size: int, memory_bytes: int) -> bool:
        return size <= self._max_bytes and memory_bytes <= self._max_memory_bytes


def _width(text: str) -> int:
    """Return how many bytes each character takes in memory."""
    memory_bytes = sys.getsizeof(text) - _STR_OBJECT_BYTES  # what CPython has chosen, without a look at each character
    return 1 if memory_bytes < 1.5 * len(text) else 2 if memory_bytes < 3 * len(text) else 4


def loads_in_pieces(raw: Buffer, take: Take = "".join) -> Any:
    """Parse JSON from a kernel, as `loads_lenient` does.

    Parameters
    ----------
    take : callable
        Makes a value of a long string, which it gets in pieces, as often as it likes. Keys are always joined.

    Raises
    ------
    ValueError
        If it is not JSON.
    TooComplexError
        If too much is left of it without its long strings.
    """
    skeleton, spans = _cut_out(raw)
    if parsed_bytes(skeleton) > _MAX_PARSED_BYTES:
        raise TooComplexError("the JSON has too many items")
    value = loads_lenient(bytes(skeleton))
    return _fill(value, spans, raw, take) if spans else value


def _cut_out(raw: Buffer) -> tuple[bytearray, dict[str, tuple[int, int]]]:
    """Return the text with placeholders for its long strings, and where these are."""
    # A kernel that guessed a placeholder could send it as text, and get another string in its place.
    skeleton, unguessable, at = bytearray(), uuid.uuid4().hex, 0
    spans: dict[str, tuple[int, int]] = {}
    while (quote := raw.find(b'"', at)) >= 0:
        end = _string_end(raw, quote + 1)
        is_long = end - quote > _SHORT_BYTES
        # Checked before the copy, so that a message without long strings is not copied as a whole.
        _refuse_large_skeleton(len(skeleton) + (quote if is_long else end) - at)
        if is_long:
            name = f"{unguessable}{len(spans)}"
            spans[name] = (quote + 1, end)
            skeleton += raw[at:quote]
            skeleton += f'"{name}"'.encode()
        else:
            skeleton += raw[at : end + 1]
        at = end + 1
    _refuse_large_skeleton(len(skeleton) + len(raw) - at)
    skeleton += raw[at:]
    return skeleton, spans


def _refuse_large_skeleton(skeleton_bytes: int) -> None:
    if skeleton_bytes > _MAX_SKELETON_BYTES:
        raise TooComplexError(f"the JSON has more than {_MAX_SKELETON_BYTES:,} bytes beside its long strings")


def _string_end(raw: Buffer, start: int) -> int:
    """Return the index of the quote that ends the string whose first character is at `start`."""
    # Most strings are short and have no escape: two searches find their end without a copy.
    quote = raw.find(b'"', start, start + _SHORT_BYTES)
    if quote >= 0 and raw.rfind(b"\\", start, quote) < 0:
        return quote
    size = _FIRST_WINDOW_BYTES
    while start < len(raw):
        end = _window_end(raw, start, min(start + size, len(raw)))
        window = raw[start:end]
        if _BACKSLASH in window:  # escaped backslashes first, so that each one that is left begins an escape
            window = window.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        quote = window.find(b'"')
        if quote >= 0:
            return start + quote
        start, size = end, min(size * 8, PIECE_BYTES)
    raise ValueError("a JSON string does not end")


def _window_end(raw: Buffer, start: int, end: int) -> int:
    """Return the last place up to `end` where a string may be cut; `start` is such a place."""
    if end == len(raw):
        return end
    cut = end
    # A character of UTF-8 has at most three continuation bytes.
    while cut > end - 3 and raw[cut] & 0xC0 == 0x80:
        cut -= 1
    # The longest escape (\u0041) has six bytes. Windows are longer by far, so a cut is always beyond `start`.
    last = raw.rfind(b"\\", max(start, cut - 6), cut)
    if last >= 0 and _begins_escape(raw, start, last):
        cut = last
    if cut - 6 >= start and _HIGH_SURROGATE.match(raw[cut - 6 : cut]) and _begins_escape(raw, start, cut - 6):
        cut -= 6
    return cut


def _begins_escape(raw: Buffer, start: int, backslash: int) -> bool:
    """Return whether the backslash begins an escape: not if it is the second one of an escaped backslash."""
    before = raw[start:backslash]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 0


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The string between two quotes, in pieces."""

    raw: Buffer
    start: int
    end: int

    def __iter__(self) -> Iterator[str]:
        start = self.start
        while start < self.end:
            cut = self.end if self.end - start <= PIECE_BYTES else _window_end(self.raw, start, start + PIECE_BYTES)
            window = self.raw[start:cut]
            text = any_text(window)
            # Base64 has nothing to unescape, and the decoder would look at each character.
            # A raw control character counts as escaped, so that the decoder refuses it.
            yield loads_lenient(f'"{text}"') if only_escaped(window) else text
            start = cut

    @property
    def size(self) -> int:
        """How many bytes stand between the quotes."""
        return self.end - self.start


def _fill(root: Any, spans: dict[str, tuple[int, int]], raw: Buffer, take: Take) -> Any:
    """Put the long strings in the places that were kept for them; containers are changed in place."""

    def value_of(item: Any) -> Any:
        return take(_Pieces(raw, *spans[item])) if isinstance(item, str) and item in spans else item

    holder = [root]
    containers: list[Any] = [holder]
    while containers:
        container = containers.pop()
        if isinstance(container, dict):
            filled = {
                _key(_Pieces(raw, *spans[key])) if key in spans else key: value_of(value)
                for key, value in container.items()
            }
            container.clear()
            container.update(filled)
            inner = container.values()
        else:
            container[:] = map(value_of, container)
            inner = container
        containers.extend(item for item in inner if isinstance(item, (dict, list)))
    return holder[0]


def _key(pieces: _Pieces) -> str:
    # `take` never sees keys, so its bounds do not hold for them.
    if pieces.size > _MAX_KEY_BYTES:
        raise ValueError(f"a name in the JSON has more than {_MAX_KEY_BYTES:,} bytes")
    return "".join(pieces)
