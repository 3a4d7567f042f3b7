"""Which files a run created or changed, at a price that a run does not notice.

After each run the directory is looked at once, by `stat` alone; what was seen is what the next run is compared with.
A small directory is looked at on the spot, which takes less time than going to a thread and back; a large one in a
thread. What the API itself writes between runs is noted and not reported.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from .directory_walk import Entry, TooManyEntriesError, walk

_INLINE_ENTRIES = 32

Signature = tuple[int, int, int]


def signature(found: os.stat_result) -> Signature:
    """Return what changes when a file's content does."""
    return found.st_size, found.st_mtime_ns, found.st_ino


class ChangeWatch:
    """The files of one session, as they were after the last run.

    Parameters
    ----------
    open_root : callable
        Returns a new descriptor of the session's directory.
    max_entries : int
        A tree with more entries is not watched.
    """

    def __init__(self, open_root: Callable[[], int], max_entries: int) -> None:
        self._open_root = open_root
        self._max_entries = max_entries
        self._known: dict[str, Signature] | None = {}
        self._noted: dict[str, Signature | None] = {}

    def note(self, path: str, found: os.stat_result | None) -> None:
        """Take note of a file that did not come from code; None if it was deleted."""
        self._noted[path] = None if found is None else signature(found)

    async def changes(self) -> list[Entry]:
        """Return the files that are new or changed since the last call.

        Raises
        ------
        OSError
        """
        entries = await self._look()
        if entries is None:
            self._known = None  # too many: there is nothing to compare with, now or next time
            self._noted.clear()
            return []
        before = self._known
        self._known = {entry.path: signature(entry.stat) for entry in entries}
        # Noted until now: what was written while we looked may have been seen or not.
        noted, self._noted = self._noted, {}
        self._known.update((path, new) for path, new in noted.items() if new is not None)
        if before is None:
            return []
        before.update((path, new) for path, new in noted.items() if new is not None)
        return [entry for entry in entries if before.get(entry.path) != signature(entry.stat)]

    async def _look(self) -> list[Entry] | None:
        if self._known is not None and len(self._known) <= _INLINE_ENTRIES:
            entries = self._scan(min(_INLINE_ENTRIES * 2, self._max_entries))
            if entries is not None:
                return entries
        return await asyncio.to_thread(self._scan, self._max_entries)

    def _scan(self, max_entries: int) -> list[Entry] | None:
        root = self._open_root()
        try:
            return list(walk(root, max_entries))
        except TooManyEntriesError:
            return None
        finally:
            os.close(root)
