"""Removal of directory trees that hostile code has made: iterative, bounded in time, never raises.

`shutil.rmtree` recurses and stops at the first directory that it may not read. Code in a kernel can nest directories
deeper than Python recurses, deny access to them, or fill them faster than they are emptied. `remove_tree` walks with
one open descriptor, so that depth costs neither stack nor descriptors and no path leads out of the tree. A tree that
resists is moved aside, so that its name is free again, and reported by `describe_leftovers` until it is gone.
"""

from __future__ import annotations

import errno
import os
import queue
import secrets
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

#: Time that a caller waits for the removal of one tree, by default. A background thread goes on after that.
REMOVAL_SECONDS = 1.0
#: Directory, beside a tree that could not be removed, that this tree is moved to.
ASIDE_NAME = "not-removed"

_BACKGROUND_SECONDS = 600.0
_MAX_QUEUED = 1000
_MAX_NAMED = 5
_MAX_KEPT_NAME_BYTES = 100  # of the name of a tree that is moved aside
_MAX_FAILURES = 1000  # in one directory; each is remembered
_BATCH_ENTRIES = 256  # a hostile directory can have millions of entries
_TIME_IS_UP = "its removal takes long and goes on in the background"
_TOO_MUCH = f"it could not be removed within {_BACKGROUND_SECONDS:g} s; the next start of a server goes on"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Leftover:
    """A tree that could not be removed.

    Parameters
    ----------
    path : Path
        Present place of the tree.
    reason : str
        Reason for an administrator why it is still there.
    """

    path: Path
    reason: str


def remove_tree(path: Path, *, move_aside: bool = True, seconds: float = REMOVAL_SECONDS) -> Leftover | None:
    """Remove a file or a directory with everything below it. Blocks: call it in a thread.

    Parameters
    ----------
    path : Path
        The tree. Its parent directory is trusted; what is at its name is not, and no link is followed.
    move_aside : bool
        Whether to free the name of a tree that resists: it is moved to the directory ``not-removed`` beside it.
    seconds : float
        Time limit. When the time is up, a background thread goes on.

    Returns
    -------
    Leftover or None
        Tree that is left, with the reason; None if nothing is.
    """
    removal = _Removal(time.monotonic() + seconds)
    removal.remove(path)
    if removal.reason is None:
        return None
    leftover = Leftover(_moved_aside(path) if move_aside else path, removal.reason)
    _report(leftover)
    return leftover


def retry_leftovers(directory: Path, *, seconds: float = REMOVAL_SECONDS) -> None:
    """Try again to remove what an earlier process has moved aside below `directory`."""
    give_up_at = time.monotonic() + seconds
    aside = directory / ASIDE_NAME
    try:
        found = list(islice(aside.iterdir(), _MAX_QUEUED))
    except OSError:  # nothing was ever moved there
        return
    for path in found:
        removal = _Removal(give_up_at)
        removal.remove(path)
        if removal.reason is not None:
            _report(Leftover(path, removal.reason))
    with suppress(OSError):  # something is left in it
        aside.rmdir()


def _report(leftover: Leftover) -> None:
    _leftovers.add(leftover)
    if leftover.reason == _TIME_IS_UP:
        _leftovers.remove_later(leftover.path)


def describe_leftovers() -> str | None:
    """Describe the trees that this process could not remove and that are still there; None if there are none."""
    left = _leftovers.present()
    if not left:
        return None
    named = "; ".join(f"{_printable(item.path)} ({item.reason})" for item in left[:_MAX_NAMED])
    more = f"; and {len(left) - _MAX_NAMED} more" if len(left) > _MAX_NAMED else ""
    return f"could not remove files that kernels left behind; remove them by hand: {named}{more}"


def _printable(path: Path) -> str:
    return ascii(str(path))[1:-1]


# --- one tree


@dataclass(slots=True)
class _Level:
    """One directory on the way down.

    Attributes
    ----------
    identity : tuple of int
        Device and inode, to recognise the directory on the way up.
    pending : list of str
        Directories in it that are still to be removed.
    failed : set of str
        Entries that cannot be removed.
    """

    name: str
    identity: tuple[int, int]
    pending: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)


class _Removal:
    """Removal of one tree.

    Attributes
    ----------
    reason : str or None
        The first reason why something is left.
    """

    def __init__(self, give_up_at: float) -> None:
        self.reason: str | None = None
        self._give_up_at = give_up_at

    def remove(self, path: Path) -> None:
        """Remove a tree."""
        try:
            parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._note(error)
            return
        try:
            if stat.S_ISDIR(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
                self._empty(_open_directory(path.name, parent))
                os.rmdir(path.name, dir_fd=parent)
            else:
                os.unlink(path.name, dir_fd=parent)
        except OSError as error:
            self._note(error)
        finally:
            os.close(parent)

    def _note(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # running code may remove its own files meanwhile
            self.reason = self.reason or os.strerror(error.errno or 0)

    def _out_of_time(self) -> bool:
        if time.monotonic() < self._give_up_at:
            return False
        # It replaces an earlier reason, since only this one has the background thread go on.
        self.reason = _TIME_IS_UP
        return True

    def _empty(self, directory: int) -> None:
        """Remove everything in an open directory, which is closed in any case."""
        levels = [_Level("", _identity(directory))]
        try:
            while levels and not self._out_of_time():
                level = levels[-1]
                name = self._next_directory(directory, level)
                try:
                    if name is not None:
                        deeper = _open_directory(name, directory)
                        levels.append(_Level(name, _identity(deeper)))
                    elif len(levels) == 1:
                        return
                    else:
                        levels.pop()
                        deeper = self._parent_of(directory, levels[-1])
                        self._remove_emptied(level.name, deeper, levels[-1])
                except OSError as error:
                    self._note(error)
                    if name is None:  # the way up is gone: a running process has moved a directory
                        return
                    level.failed.add(name)
                    continue
                os.close(directory)
                directory = deeper
        finally:
            os.close(directory)

    def _parent_of(self, directory: int, level: _Level) -> int:
        parent = os.open("..", _DIRECTORY, dir_fd=directory)
        # A process that still runs may have moved the directory, and `..` must not lead out of the tree.
        if _identity(parent) != level.identity:
            os.close(parent)
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return parent

    def _remove_emptied(self, name: str, parent: int, level: _Level) -> None:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            self._note(error)
            level.failed.add(name)

    def _next_directory(self, directory: int, level: _Level) -> str | None:
        """Remove what is no directory; return a directory that is still to be emptied, None if there is none."""
        while not level.pending and not self._out_of_time() and len(level.failed) < _MAX_FAILURES:
            entries = self._read_some(directory, level)
            if not entries:
                return None
            for entry in entries:
                self._remove_or_keep(entry, directory, level)
        return level.pending.pop() if level.pending else None

    def _read_some(self, directory: int, level: _Level) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as found:
                return list(islice((entry for entry in found if entry.name not in level.failed), _BATCH_ENTRIES))
        except OSError as error:
            self._note(error)
            return []

    def _remove_or_keep(self, entry: os.DirEntry[str], directory: int, level: _Level) -> None:
        try:
            if entry.is_dir(follow_symlinks=False):
                level.pending.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(error)
            level.failed.add(entry.name)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _open_directory(name: str, parent: int) -> int:
    """Open a directory whose entries are to be removed, and make that possible where its mode forbids it."""
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        _allow_access(name, parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(OSError):  # another user's; whether it matters shows when an entry is removed
            os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor


def _allow_access(name: str, parent: int) -> None:
    """Change the mode of a directory that cannot be opened; never that of what a link points to."""
    if not hasattr(os, "O_PATH"):  # macOS, which can change a mode without following a link
        os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        # `fchmod` refuses an O_PATH descriptor, and `chmod` by name would follow a link.
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)
    finally:
        os.close(descriptor)


def _moved_aside(path: Path) -> Path:
    """Move a tree that resists; return where it is now."""
    aside = path.parent / ASIDE_NAME
    # Room for the suffix: names may already be as long as the file system allows, which counts bytes. The cut may
    # leave a part of a character, which macOS refuses in a name.
    kept = os.fsencode(path.name)[:_MAX_KEPT_NAME_BYTES].decode("utf-8", "ignore")
    moved = aside / f"{kept}-{secrets.token_hex(4)}"
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        path.rename(moved)
    except OSError:  # it resists that, too
        return path
    return moved


# --- all that is left


class _Leftovers:
    """The trees that this process could not remove, and the thread that goes on with those that take long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Path, Leftover] = {}
        self._queue: queue.Queue[Path] = queue.Queue(_MAX_QUEUED)
        self._thread: threading.Thread | None = None

    def add(self, leftover: Leftover) -> None:
        """Remember a tree, in the place of the oldest if there are too many."""
        with self._lock:
            self._known[leftover.path] = leftover
            if len(self._known) > _MAX_QUEUED:
                del self._known[next(iter(self._known))]

    def present(self) -> list[Leftover]:
        """Return those that are still there, oldest first."""
        with self._lock:
            self._known = {path: item for path, item in self._known.items() if os.path.lexists(path)}
            return list(self._known.values())

    def remove_later(self, path: Path) -> None:
        """Go on with a tree in the background."""
        with suppress(queue.Full):  # the next start of a server tries again
            self._queue.put_nowait(path)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._remove_queued, name="exec-removal", daemon=True)
                self._thread.start()

    def _remove_queued(self) -> None:
        while True:
            path = self._queue.get()
            removal = _Removal(time.monotonic() + _BACKGROUND_SECONDS)
            removal.remove(path)
            if removal.reason is not None:
                self.add(Leftover(path, _TOO_MUCH if removal.reason == _TIME_IS_UP else removal.reason))


_leftovers = _Leftovers()
