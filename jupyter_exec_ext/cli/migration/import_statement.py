"""One ``from … import …`` statement as it is written, to be split into several without losing a comment. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

_LONG_BYTES = 80
_HEAD = re.compile(rb"from[\s\\]+(?P<module>[\w.]+)[\s\\]+import\b[ \t\\]*")
_REST_OF_LINE = re.compile(rb"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r)")
# After a name: its comma, and if nothing else follows on the line, a comment and the line's end.
_REST_OF_ITEM = re.compile(rb"[ \t]*,?(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r)|[ \t]*)")


class ImportStatement:
    """A ``from … import …`` statement.

    Parameters
    ----------
    node : ast.ImportFrom
        What it says.
    text : bytes
        The statement alone, as it is written, in UTF-8.
    items : list of (int, int)
        Where its names, with their aliases, are in the text.

    Raises
    ------
    ValueError
        If it is written in a way that is not understood.
    """

    def __init__(self, node: ast.ImportFrom, text: bytes, items: list[tuple[int, int]]) -> None:
        head = _HEAD.match(text)
        if head is None or head["module"].decode() != node.module:
            raise ValueError("an import that is written in an unusual way")
        self._text = text
        self._items = items
        self._module = head.span("module")
        self._open = head.end()  # where the bracket is, if there is one
        self._bracket = text[self._open : self._open + 1] == b"("

    def with_module(self, module: str) -> bytes:
        """Return it with another module, and nothing else changed."""
        start, end = self._module
        return self._text[:start] + module.encode() + self._text[end:]

    def of(self, kept: Collection[int], module: str | None, *, first: bool) -> bytes:
        """Return a statement of some of its names.

        Parameters
        ----------
        kept : collection of int
            Which of the names.
        module : str or None
            Where from; None for where they are.
        first : bool
            Whether it gets the comments that belong to no name.
        """
        start, end = self._module
        head = b"from " + (self._text[start:end] if module is None else module.encode()) + b" import "
        if not self._is_laid_out:
            return head + self._in_line([self._text[a:b] for n, (a, b) in enumerate(self._items) if n in kept])
        after = self._open + 1
        line = _REST_OF_LINE.match(self._text, after)
        body = after if line is None else line.end()
        parts, cursor = [], body
        for a_name, (_, name_end) in enumerate(self._items):
            rest = _REST_OF_ITEM.match(self._text, name_end)
            until = name_end if rest is None else rest.end()
            if a_name in kept:
                parts.append(self._text[cursor:until])
            cursor = until
        opening, closing = self._text[after:body], self._text[cursor:]
        if not first:
            opening = re.sub(rb"[ \t]*#[^\r\n]*", b"", opening)
            closing = re.sub(rb"(?:[ \t]*#[^\r\n]*(?:\r\n|\n|\r))+", b"", closing)
        return head + b"(" + opening + b"".join(parts) + closing

    @property
    def _is_laid_out(self) -> bool:
        """Whether each name has a line of its own, or there are comments between them."""
        if not self._bracket:
            return False
        ends = [self._open, *(end for _, end in self._items)]
        own_lines = all(b"\n" in self._text[end:start] for end, (start, _) in zip(ends, self._items, strict=False))
        return own_lines or b"#" in self._text[self._open :]

    def _in_line(self, names: list[bytes]) -> bytes:
        line = b", ".join(names)
        if len(line) > _LONG_BYTES:
            end = b"\r\n" if b"\r\n" in self._text else b"\n"
            return b"(" + end + b"".join(b"    " + name + b"," + end for name in names) + b")"
        has_line = b"\n" not in self._text[self._open :]
        return b"(" + line + b")" if self._bracket and has_line else line
