"""Files on the client's side: read piece by piece, and written so that they are there as a whole or not at all.

Everything here blocks; a driver decides where that may happen.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

BLOCK_BYTES = 1024 * 1024

# Gets how many bytes are through, and how many there are in all if that is known.
Progress = Callable[[int, "int | None"], None]
# What can be uploaded: the path of a file, or a file opened for reading bytes.
Uploadable = str | os.PathLike[str] | IO[bytes]


class FileSource:
    """Something to upload, read from its beginning as often as need be."""

    def __init__(self, source: Uploadable, progress: Progress | None = None) -> None:
        self._path = Path(source) if isinstance(source, (str, os.PathLike)) else None
        self._file: IO[bytes] | None = None if isinstance(source, (str, os.PathLike)) else source
        self._start = 0 if self._path is not None else position(source)
        self._progress = progress
        self._begun = False
        self._read_bytes = self._sent_bytes = 0
        self._hash = hashlib.sha256()
        self.size_bytes: int | None = None
        self.error: Exception | None = None

    @property
    def repeatable(self) -> bool:
        """Whether it can be read from its beginning again."""
        return self._path is not None or self._start is not None

    @property
    def sha256(self) -> str:
        """The digest of what was read, in hexadecimal."""
        return self._hash.hexdigest()

    def rewind(self) -> None:
        """Go to the beginning, and find out how much there is."""
        self._read_bytes = self._sent_bytes = 0
        self._hash = hashlib.sha256()
        if self._path is not None:
            self.close()
            self._file = self._path.open("rb", buffering=0)
            found = os.fstat(self._file.fileno())
            self.size_bytes = found.st_size if stat.S_ISREG(found.st_mode) else None
        elif self._start is not None:
            assert self._file is not None
            end = self._file.seek(0, io.SEEK_END)
            self._file.seek(self._start)
            self.size_bytes = end - self._start

    def read(self) -> bytes:
        """Return the next piece; what goes wrong is kept in `error`, since HTTP libraries take it for their own."""
        try:
            return self._read()
        except Exception as error:
            self.error = error
            raise

    def _read(self) -> bytes:
        assert self._file is not None
        most = BLOCK_BYTES if self.size_bytes is None else min(BLOCK_BYTES, self.size_bytes - self._read_bytes)
        piece = self._file.read(most) if most else b""
        if not piece and self.size_bytes is not None and self._read_bytes < self.size_bytes:
            raise OSError(f"the file became shorter while it was being read: {self._path or self._file}")
        self._hash.update(piece)
        self._read_bytes += len(piece)
        return piece

    def sent(self, size: int) -> None:
        """Report progress."""
        self._sent_bytes += size
        if self._progress is not None:
            self._progress(self._sent_bytes, self.size_bytes)

    def close(self) -> None:
        """Close what was opened here."""
        if self._path is not None and self._file is not None:
            self._file.close()


def position(file: object) -> int | None:
    """Return where a file stands, None if it cannot be read twice."""
    try:
        return file.tell() if file.seekable() else None  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None


class Target(Protocol):
    """Where a download goes."""

    def begin(self) -> None:
        """Start anew."""

    def write(self, data: bytes) -> None:
        """Take in the next bytes."""

    def commit(self) -> None:
        """Keep what came."""

    def discard(self) -> None:
        """Leave no trace; after `commit` this does nothing."""

    @property
    def sha256(self) -> str:
        """The digest of what came, in hexadecimal."""


class MemoryTarget:
    """Keeps a download in memory."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start anew."""
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._data += data

    def commit(self) -> None:
        """Have nothing to do."""

    def discard(self) -> None:
        """Have nothing to do."""

    @property
    def sha256(self) -> str:
        """The digest of what came."""
        return hashlib.sha256(self._data).hexdigest()

    def data(self) -> bytes:
        """Return what came."""
        return bytes(self._data)


class FileTarget:
    """Writes a download beside its place and moves it there when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{secrets.token_hex(8)}.part")
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256()

    def begin(self) -> None:
        """Start anew."""
        self.discard()
        self._hash = hashlib.sha256()
        self._file = self._temporary.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        assert self._file is not None
        self._hash.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def commit(self) -> None:
        """Put the file in its place."""
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)
        self._file = None

    def discard(self) -> None:
        """Remove what is not complete."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary.unlink(missing_ok=True)

    @property
    def sha256(self) -> str:
        """The digest of what came."""
        return self._hash.hexdigest()


def download_path(local_path: str | os.PathLike[str], remote_path: str) -> Path:
    """Return where a download goes: into a directory that is there under its own name, else where it is said."""
    path = Path(local_path)
    return path / remote_path.rpartition("/")[2] if path.is_dir() else path


def upload_path(source: Uploadable, remote_path: str | None) -> str:
    """Return where an upload goes: where it is said, else under the local file's name.

    Raises
    ------
    ValueError
        If the name is neither given nor known.
    """
    if remote_path is not None:
        return remote_path
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        raise ValueError("say under which name to upload it (remote_path)")
    return Path(name).name
