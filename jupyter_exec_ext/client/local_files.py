"""Local files of the client: uploads read in pieces, and downloads that appear complete or not at all.

All calls block; the asynchronous driver makes them in a thread.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

# Files are read and written in blocks of this size, so that a transfer needs a bounded amount of memory.
BLOCK_BYTES = 1024 * 1024

# Called with the number of bytes transferred, and the total if it is known.
Progress = Callable[[int, "int | None"], None]
# Source of an upload: the path of a file, or a file opened for reading bytes.
Uploadable = str | os.PathLike[str] | IO[bytes]


class FileSource:
    """Source of an upload, read from its beginning once for each attempt."""

    def __init__(self, source: Uploadable, progress: Progress | None = None) -> None:
        self._path = Path(source) if isinstance(source, (str, os.PathLike)) else None
        self._file: IO[bytes] | None = None if isinstance(source, (str, os.PathLike)) else source
        self._start = 0 if self._path is not None else position_of(source)
        self._progress = progress
        self._read_bytes = self._sent_bytes = 0
        self._hash = hashlib.sha256()
        self.size_bytes: int | None = None
        self.error: Exception | None = None

    @property
    def can_rewind(self) -> bool:
        """True if it can be read from its beginning again."""
        return self._path is not None or self._start is not None

    @property
    def sha256(self) -> str:
        """The digest of the bytes read, in hexadecimal."""
        return self._hash.hexdigest()

    def rewind(self) -> None:
        """Go to the beginning, and read the size."""
        self._read_bytes = self._sent_bytes = 0
        self._hash = hashlib.sha256()
        if self._path is not None:
            self.close()
            try:
                # Reads are of whole blocks, so a buffer would only copy them once more.
                self._file = self._path.open("rb", buffering=0)
            except (FileNotFoundError, IsADirectoryError) as error:
                words = f"{self._path} cannot be uploaded ({error.strerror}); name a file"
                raise _in_words(error, words, self._path) from None
            # The size of the open file: meanwhile another file may have been renamed to its path.
            found = os.fstat(self._file.fileno())
            self.size_bytes = found.st_size if stat.S_ISREG(found.st_mode) else None  # a pipe or device has no size
        elif self._start is not None:
            assert self._file is not None
            end = self._file.seek(0, io.SEEK_END)
            self._file.seek(self._start)
            self.size_bytes = end - self._start

    def read(self) -> bytes:
        """Return the next piece; an exception is also kept in `error`, since HTTP libraries replace it by their own."""
        try:
            return self._read()
        except Exception as error:  # raised again here, and by the operation after the HTTP library's own error
            self.error = error
            raise

    def _read(self) -> bytes:
        assert self._file is not None
        # The size has been announced as Content-Length, so bytes that are appended meanwhile are not sent.
        size = BLOCK_BYTES if self.size_bytes is None else min(BLOCK_BYTES, self.size_bytes - self._read_bytes)
        piece = self._file.read(size) if size else b""
        # Without this error the request would end before its announced length, and the server would wait for the rest.
        if not piece and self.size_bytes is not None and self._read_bytes < self.size_bytes:
            raise OSError(f"the file became shorter while it was being read: {self._path or self._file}")
        self._hash.update(piece)
        self._read_bytes += len(piece)
        return piece

    def sent(self, size: int) -> None:
        """Count bytes that were sent, and report the progress."""
        self._sent_bytes += size
        if self._progress is not None:
            self._progress(self._sent_bytes, self.size_bytes)

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._path is not None and self._file is not None:
            self._file.close()


class _Words(OSError):
    """An error with words of its own, in place of the number, the cause and the path that Python shows."""

    words = ""

    def __str__(self) -> str:
        return self.words

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self).__mro__[2]
        return _in_words, (kind(self.errno, self.strerror), self.words, self.filename)


# With the names that people know, since a traceback shows them.
_IN_WORDS: dict[type[OSError], type[_Words]] = {
    kind: type(kind.__name__, (_Words, kind), {"__module__": kind.__module__})
    for kind in (FileNotFoundError, IsADirectoryError, NotADirectoryError)
}


def _in_words(error: OSError, message: str, path: str | os.PathLike[str]) -> OSError:
    """Return an error of the same kind and number about this path, with a message that names the remedy."""
    changed = _IN_WORDS[type(error)](error.errno, error.strerror, os.fspath(path))
    changed.words = message
    return changed


def source_of_bytes(data: bytes) -> FileSource:
    """Return the source of an upload from memory.

    Raises
    ------
    TypeError
        If the data is a text, whose encoding is not known.
    """
    if isinstance(data, str):
        raise TypeError("the data is a text, not bytes; encode it first: text.encode()")
    return FileSource(io.BytesIO(data))


def position_of(file: Any) -> int | None:
    """Return the position of an open file, None if it cannot be read twice."""
    try:
        return int(file.tell()) if file.seekable() else None
    except (AttributeError, OSError):
        return None


class Target(ABC):
    """Destination of a download. It computes the digest of the bytes that arrive."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @abstractmethod
    def begin(self) -> None:
        """Start the download, or start it again without the bytes of the attempt before."""

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        assert self._file is not None
        self._hash.update(data)
        # An unbuffered file may write a part only, such as on a disk that is nearly full.
        rest = memoryview(data)
        while rest:
            written = self._file.write(rest)
            rest = rest[len(rest) if written is None else written :]  # some file-like objects return None

    @abstractmethod
    def commit(self) -> None:
        """Keep the download."""

    @abstractmethod
    def discard(self) -> None:
        """Remove an incomplete download; after `commit` this does nothing."""

    @property
    def sha256(self) -> str:
        """The digest of the bytes, in hexadecimal."""
        return self._hash.hexdigest()


class OpenFileTarget(Target):
    """Download into a file that the caller has opened, from its current position."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._open_file = file
        self._start = position_of(file)
        self._is_written = self._is_committed = False

    def begin(self) -> None:
        """Start the download, or start it again at the same position."""
        if self._is_written and self._start is None:
            raise OSError("the download was cut, and the file that it went into cannot be rewound")
        self.discard()
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        self._is_written = True
        super().write(data)

    def commit(self) -> None:
        """Flush the file."""
        self._open_file.flush()
        self._is_committed = True

    def discard(self) -> None:
        """Truncate the file where the download began, if it can be rewound."""
        if self._is_written and not self._is_committed and self._start is not None:
            self._open_file.seek(self._start)
            self._open_file.truncate()


class MemoryTarget(OpenFileTarget):
    """Download into memory."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        super().__init__(self._buffer)

    def data(self) -> bytes:
        """Return the bytes."""
        return self._buffer.getvalue()


class FileTarget(Target):
    """Download into a temporary file, which takes its place when it is complete.

    Parameters
    ----------
    path : Path
        The file.
    mode : int, optional
        Permissions of the file; by default those of any new file.
    """

    def __init__(self, path: Path, mode: int | None = None) -> None:
        super().__init__()
        self.path = path
        self._mode = mode
        # In the same directory, since a rename is atomic only within one file system.
        self._temporary = path.with_name(f".{secrets.token_hex(8)}.part")

    def begin(self) -> None:
        """Start the download in a new file."""
        self.discard()
        self._hash = hashlib.sha256()
        try:
            opener = None if self._mode is None else partial(os.open, mode=0o600)
            self._file = open(self._temporary, "xb", buffering=0, opener=opener)  # noqa: SIM115  # `commit` closes it
        except (FileNotFoundError, NotADirectoryError) as error:
            words = f"{self.path} cannot be written, since there is no directory {self.path.parent}; create it"
            raise _in_words(error, words, self.path) from None
        if self._mode is not None:
            self._temporary.chmod(self._mode)

    def commit(self) -> None:
        """Sync the file to disk and move it to its place."""
        assert self._file is not None
        # Without a sync, a crash of the machine could leave an empty file under the final name.
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)
        self._file = None

    def discard(self) -> None:
        """Remove an incomplete file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary.unlink(missing_ok=True)


def write_whole_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file, which appears complete or not at all, with these permissions or those of any new file."""
    target = FileTarget(path, mode)
    try:
        target.begin()
        target.write(data)
        target.commit()
    finally:
        target.discard()


def download_path(local_path: str | os.PathLike[str], remote_path: str) -> Path:
    """Return the local path of a download: in an existing directory, the remote file's name is added."""
    path = Path(local_path)
    return path / remote_path.rpartition("/")[2] if path.is_dir() else path


def upload_path(source: Uploadable, remote_path: str | None) -> str:
    """Return the remote path of an upload, by default the local file's name.

    Raises
    ------
    ValueError
        If no remote path is given and the source has no name.
    TypeError
        If the source is the content of a file.
    """
    if isinstance(source, (bytes, bytearray)):
        raise TypeError("bytes are not the path of a file; upload them with write_file(PATH, DATA)")
    if remote_path is not None:
        return remote_path
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        raise ValueError("this file has no name; pass the name of the upload as remote_path")
    return Path(name).name
