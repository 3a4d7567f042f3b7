"""Directory scan: a bounded walk that follows no link, and the files that a run created or changed.

After each run, `ChangeWatch` compares the directory's files, by `stat` alone, with those after the run before.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice

from ...protocol.file_requests import MAX_DEPTH, MAX_PATH_BYTES, TEMPORARY_PREFIX
from ...protocol.records_json import utc_timestamp
from .confinement import DIRECTORY, reason_to_refuse
from .text_history import MAX_TEXTS_PER_RUN, TextHistory, Version, read_text

_LATEST_SECONDS = 253_402_300_799  # the end of the year 9999
#: Directory of packages that a session has installed; `in_kernel/package_environment.py` makes it.
PACKAGES_DIRECTORY = ".exec-packages"
_SLICE_SECONDS = 0.02  # after each slice, the walks of other sessions have their turn

Signature = tuple[int, int, int]


class TooManyEntriesError(Exception):
    """The tree has more entries than the limit."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file below the directory, with its path relative to it."""

    path: str
    stat: os.stat_result


def walk(
    root: int,
    max_entries: int,
    *,
    prefix: str = "",
    on_temporary: Callable[[int, str], None] | None = None,
    includes_packages: bool = False,
) -> Generator[Entry, None, None]:
    """Yield the regular files below `root`, in no order.

    Left out are links, FIFOs and the like, files with a second name, names that are not UTF-8, incomplete uploads, and
    files that vanish meanwhile.

    Parameters
    ----------
    max_entries : int
        Limit on the entries of any kind.
    prefix : str
        Put before each path.
    on_temporary : callable, optional
        Called with the directory's descriptor and the name of each incomplete upload.
    includes_packages : bool
        Whether packages of the session's own are among the files.

    Raises
    ------
    TooManyEntriesError
        If there are more than `max_entries`.
    """
    left = max_entries
    # Depth first, one open descriptor per level.
    stack: list[tuple[int, str, Iterator[os.DirEntry[str]]]] = []
    try:
        # One entry more than allowed: enough to notice that there are too many, without reading them all.
        stack.append(_opened(root, ".", prefix, left + 1))
        while stack:
            directory, path, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                os.close(stack.pop()[0])
                continue
            left -= 1
            if left < 0:
                raise TooManyEntriesError
            name = entry.name
            if not _is_valid_path(path, name):
                continue
            try:
                if name == PACKAGES_DIRECTORY and not (path or includes_packages):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    # No request can name a path that is deeper. This also bounds the open descriptors.
                    if len(stack) < MAX_DEPTH:
                        stack.append(_opened(directory, name, f"{path}{name}/", left + 1))
                    continue
                found = entry.stat(follow_symlinks=False)
            except OSError:  # since it was read, code has removed it, denied access, or put a link in its place
                continue
            if name.startswith(TEMPORARY_PREFIX):
                if on_temporary is not None:
                    on_temporary(directory, name)
            elif reason_to_refuse(found) is None:
                yield Entry(path + name, found)
    finally:
        for directory, _, _ in stack:
            os.close(directory)


def _is_valid_path(path: str, name: str) -> bool:
    """Return whether `protocol.file_requests` accepts the path; quickly, for large trees."""
    # The directory's part may have characters of up to four bytes.
    if name.isascii() and len(path) + len(name) <= MAX_PATH_BYTES // 4:
        return True
    try:
        return len((path + name).encode()) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        # `os.scandir` returns a name that is not UTF-8 with lone surrogates, and no request can name such a file.
        return False


def _opened(directory: int, name: str, path: str, most: int) -> tuple[int, str, Iterator[os.DirEntry[str]]]:
    descriptor = os.open(name, DIRECTORY, dir_fd=directory)
    with ExitStack() as undo:
        undo.callback(os.close, descriptor)
        # Read at once, so that no second descriptor stays open.
        with os.scandir(descriptor) as entries:
            found = list(islice(entries, most))
        undo.pop_all()
    return descriptor, path, iter(found)


class SlicedWalk:
    """Walk in short slices, so that large directories take fair turns in the threads.

    Attributes
    ----------
    has_ended : bool
        Whether all files were found, or as many as the limit allows.
    is_truncated : bool
        Whether there are more entries than the limit.
    """

    def __init__(self, entries: Generator[Entry, None, None]) -> None:
        self.entries = entries
        self.entries_found: list[Entry] = []
        self.has_ended = False
        self.is_truncated = False

    def continue_walk(self) -> None:
        """Find more files, for one slice; runs in a thread."""
        slice_ends_at = time.monotonic() + _SLICE_SECONDS
        try:
            for entry in self.entries:
                self.entries_found.append(entry)
                if time.monotonic() >= slice_ends_at:
                    return
        except TooManyEntriesError:
            self.is_truncated = True  # the files found so far are listed
        self.has_ended = True


def signature(found: os.stat_result) -> Signature:
    """Return values that change when a file's content does."""
    return found.st_size, found.st_mtime_ns, found.st_ino


def mtime_of(found: os.stat_result) -> str:
    """Return when a file was changed; clamped, since code can set any time."""
    return utc_timestamp(min(max(found.st_mtime, 0), _LATEST_SECONDS))


class ChangeWatch:
    """Change detection for one session's files, against their state after the last run.

    Attributes
    ----------
    texts : TextHistory
        Texts of the files that runs and the API have written.

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
        self.texts = TextHistory()
        self._known: dict[str, Signature] | None = {}
        self._noted: dict[str, Signature | None] = {}

    def note(self, path: str, found: os.stat_result | None) -> None:
        """Record that the API, not code, wrote a file; None if it was deleted."""
        # None cancels an earlier note: if code makes the file again, that is a change.
        self._noted[path] = None if found is None else signature(found)
        self.texts.add(path, None)

    async def keep_text(self, path: str, found: os.stat_result) -> None:
        """Keep the text of a file that the API wrote, so that the change by the next run can be shown."""
        text = await asyncio.to_thread(self._read_text, path, found)
        if text is not None:
            self.texts.add(path, Version(mtime_of(found), text, False))

    def _read_text(self, path: str, found: os.stat_result) -> str | None:
        """Return the text of a file, if it is a small one and still as it was `found`; runs in a thread."""
        with suppress(OSError):
            root = self._open_root()
            try:
                return read_text(root, path, found)
            finally:
                os.close(root)
        return None

    async def changes(self) -> list[Entry]:
        """Return the files that are new or changed since the last call.

        Raises
        ------
        OSError
            If the directory cannot be read.
        """
        entries = await asyncio.to_thread(self._scan)
        if entries is None:
            self._known = None  # too many to compare, now or next time
            self._noted.clear()
            self.texts.clear()
            return []
        before = self._known
        self._known = {entry.path: signature(entry.stat) for entry in entries}
        # Files that the API wrote during the scan were found by it or not.
        noted, self._noted = self._noted, {}
        self._known.update((path, new) for path, new in noted.items() if new is not None)
        if before is None:
            self.texts.clear()
            return []
        # Code may have changed such a file since: then its signature is another one than the API left.
        before.update((path, new) for path, new in noted.items() if new is not None)
        changed = [entry for entry in entries if before.get(entry.path) != signature(entry.stat)]
        await self._keep_texts(changed, before)
        return changed

    async def _keep_texts(self, changed: Sequence[Entry], before: Mapping[str, Signature]) -> None:
        read = sorted(changed, key=lambda entry: entry.path)[:MAX_TEXTS_PER_RUN]
        texts = await asyncio.to_thread(lambda: {each.path: self._read_text(each.path, each.stat) for each in read})
        for path, found in ((each.path, each.stat) for each in changed):
            text = texts.get(path)
            self.texts.add(path, None if text is None else Version(mtime_of(found), text, path not in before))

    def _scan(self) -> list[Entry] | None:
        root = self._open_root()
        try:
            return list(walk(root, self._max_entries))
        except TooManyEntriesError:
            return None
        finally:
            os.close(root)
