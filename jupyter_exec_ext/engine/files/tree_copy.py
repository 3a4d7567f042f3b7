"""Copy of a directory tree that hostile code has made: shares the disk's blocks where the file system can do so.

Links are copied as links, and never followed. Files that have several names in the tree have them in the copy, too.
What is neither file, directory nor link is left out. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NoReturn

from ...errors import CheckpointFailed
from .confinement import DIRECTORY, READ, open_directory

if os.name == "posix":
    import fcntl

_CLONE = 0x40049409  # FICLONE of Linux
_CHUNK_BYTES = 64 * 1024 * 1024
_MAX_DEPTH = 200
_MAX_ENTRIES = 100_000


@dataclass
class TreeCopy:
    """Copy of one tree.

    Parameters
    ----------
    max_bytes : int
        Bytes that may be copied; blocks that are shared do not count.
    """

    max_bytes: int
    _entries: int = 0
    _bytes: int = 0
    _can_share: bool = True
    _names: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)

    def copy(self, source: int, target: int) -> None:
        """Copy everything below a directory into another one.

        Parameters
        ----------
        source, target : int
            Descriptors of the directories.

        Raises
        ------
        CheckpointFailed
            If there is too much, or a part cannot be read.
        OSError
            If the copy cannot be written.
        """
        waiting: list[tuple[str, ...]] = [()]
        directories: list[tuple[tuple[str, ...], os.stat_result]] = []
        while waiting:
            parts = waiting.pop()
            if len(parts) > _MAX_DEPTH:
                _refuse(f"directories are nested more than {_MAX_DEPTH} levels deep")
            with ExitStack() as undo:
                here = _opened(source, parts)
                undo.callback(os.close, here)
                there = open_directory(target, parts, make=True)
                undo.callback(os.close, there)
                with os.scandir(here) as entries:
                    names = [entry.name for entry in entries]
                waiting += [(*parts, name) for name in names if self._copy_entry(here, there, target, (*parts, name))]
                directories.append((parts, os.fstat(here)))
        # Last, and the deepest first: a directory may not be writable, and each entry changes its times.
        for parts, found in reversed(directories):
            there = open_directory(target, parts)
            try:
                _take_over(found, there)
            finally:
                os.close(there)

    def _copy_entry(self, here: int, there: int, target: int, path: tuple[str, ...]) -> bool:
        """Copy one entry; return True for a directory, of which the content is to be copied later."""
        self._entries += 1
        if self._entries > _MAX_ENTRIES:
            _refuse(f"there are more than {_MAX_ENTRIES} files and directories")
        name = path[-1]
        try:
            found = os.lstat(name, dir_fd=here)
        except FileNotFoundError:  # removed meanwhile
            return False
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
        elif stat.S_ISREG(found.st_mode):
            self._copy_file(here, there, target, path)
        return stat.S_ISDIR(found.st_mode)

    def _copy_file(self, here: int, there: int, target: int, path: tuple[str, ...]) -> None:
        name = path[-1]
        with ExitStack() as undo:
            try:
                source = os.open(name, READ, dir_fd=here)
            except FileNotFoundError:  # removed meanwhile
                return
            except PermissionError:
                _refuse(f"the file {'/'.join(path)!r} cannot be read")
            undo.callback(os.close, source)
            found = os.fstat(source)
            key = (found.st_dev, found.st_ino)
            if found.st_nlink > 1 and (first := self._names.setdefault(key, path)) != path:
                directory = open_directory(target, first[:-1])
                undo.callback(os.close, directory)
                os.link(first[-1], name, src_dir_fd=directory, dst_dir_fd=there, follow_symlinks=False)
                return
            copied = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=there
            )
            undo.callback(os.close, copied)
            if not self._share(source, copied):
                self._copy_bytes(source, copied, found.st_size)
            _take_over(found, copied)

    def _share(self, source: int, copied: int) -> bool:
        """Have a file share the blocks of another; return False where the file system cannot do that."""
        if self._can_share:
            try:
                fcntl.ioctl(copied, _CLONE, source)
            except OSError:
                self._can_share = False
        return self._can_share

    def _copy_bytes(self, source: int, copied: int, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes > self.max_bytes:
            _refuse(
                f"the files have more than {self.max_bytes} bytes, and their file system cannot share them between "
                "copies (max_checkpoint_file_bytes)"
            )
        left = size_bytes
        while left > 0:
            data = os.read(source, min(left, _CHUNK_BYTES))
            if not data:
                return
            left -= len(data)
            view = memoryview(data)
            while view:  # near the end of a disk's room, less is written than was given
                view = view[os.write(copied, view) :]


def _opened(root: int, parts: tuple[str, ...]) -> int:
    try:
        return open_directory(root, parts) if parts else os.open(".", DIRECTORY, dir_fd=root)
    except PermissionError:
        _refuse(f"the directory {'/'.join(parts)!r} cannot be read")


def _take_over(found: os.stat_result, descriptor: int) -> None:
    """Give a copy the mode and times of what it was copied from."""
    with suppress(PermissionError):
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)
        os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))


def _refuse(why: str) -> NoReturn:
    raise CheckpointFailed(f"the session's files cannot be kept with a checkpoint: {why}")
