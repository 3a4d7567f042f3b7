"""What was run in a kernel: answers to questions for its history."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

_MAX_LINES = 1000


class History:
    """The last cells of one kernel. The session's own is not asked: it ends with the session."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, int, str]] = deque(maxlen=_MAX_LINES)

    def add(self, count: int, code: str) -> None:
        """Take a cell that was run as the `count`-th."""
        if code.strip():
            self._lines.append((1, count, code))

    def find(self, request: Mapping[str, Any]) -> list[Any]:
        """Return what a ``history_request`` asks for; outputs are not kept."""
        lines = list(self._lines)
        kind = request.get("hist_access_type")
        if kind == "range":
            first, last = request.get("start") or 0, request.get("stop")
            if request.get("session", 0) not in (0, 1):
                lines = []
            lines = [line for line in lines if line[1] >= first and (last is None or line[1] < last)]
        else:
            if kind == "search":
                pattern = str(request.get("pattern") or "*")
                lines = [line for line in lines if fnmatchcase(line[2], pattern)]
                if request.get("unique"):
                    lines = sorted({line[2]: line for line in lines}.values())
            count = request.get("n")
            lines = lines[-count:] if count else lines
        if request.get("output"):
            return [(session, number, (code, None)) for session, number, code in lines]
        return lines
