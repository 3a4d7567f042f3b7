"""What is below a directory: a bounded walk by descriptors that follows no link and opens no file."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice

from ...protocol.file_paths import MAX_DEPTH, MAX_PATH_BYTES, TEMPORARY_PREFIX
from .confinement import DIRECTORY, complaint_about


class TooManyEntriesError(Exception):
    """The tree has more entries than may be looked at."""


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
) -> Generator[Entry, None, None]:
    """Yield the regular files below `root`, in no order.

    What cannot be asked for is left out: links, FIFOs and the like, files with a second name, names that are not
    UTF-8, and uploads that are not complete. What vanishes meanwhile is left out, too.

    Parameters
    ----------
    max_entries : int
        How many entries of any kind to look at.
    prefix : str
        Put before each path.
    on_temporary : callable, optional
        Gets the directory's descriptor and the name of every upload that is not complete.

    Raises
    ------
    TooManyEntriesError
    """
    left = max_entries
    # Depth first, one open descriptor per level.
    stack: list[tuple[int, str, Iterator[os.DirEntry[str]]]] = []
    try:
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
            if not _can_be_asked_for(path, name):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if len(stack) < MAX_DEPTH:
                        stack.append(_opened(directory, name, f"{path}{name}/", left + 1))
                    continue
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if name.startswith(TEMPORARY_PREFIX):
                if on_temporary is not None:
                    on_temporary(directory, name)
            elif complaint_about(found) is None:
                yield Entry(path + name, found)
    finally:
        for directory, _, _ in stack:
            os.close(directory)


def _can_be_asked_for(path: str, name: str) -> bool:
    """Return what `protocol.file_paths` would say about a name that the system gave us; quickly, for large trees."""
    if name.isascii() and len(path) + len(name) <= MAX_PATH_BYTES // 4:
        return True
    try:
        return len((path + name).encode()) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False


def _opened(directory: int, name: str, path: str, most: int) -> tuple[int, str, Iterator[os.DirEntry[str]]]:
    descriptor = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        # Read at once, so that no second descriptor stays open.
        with os.scandir(descriptor) as entries:
            return descriptor, path, iter(list(islice(entries, most)))
    except BaseException:
        os.close(descriptor)
        raise
