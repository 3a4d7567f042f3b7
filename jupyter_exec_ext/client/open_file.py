"""A download into a file that the caller has opened."""

from __future__ import annotations

import hashlib
from typing import IO

from .local_files import position


class OpenFileTarget:
    """Writes a download into a file that the caller has opened, from where it stands."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._start = position(file)
        self._begun = False
        self._committed = False
        self._hash = hashlib.sha256()

    def begin(self) -> None:
        """Start anew, taking back what was written."""
        if self._begun and self._start is None:
            raise OSError("the download was cut, and the file that it went into cannot be rewound")
        self.discard()
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._begun = True
        self._hash.update(data)
        rest = memoryview(data)
        while rest:
            written = self._file.write(rest)
            rest = rest[len(rest) if written is None else written :]

    def commit(self) -> None:
        """Keep what came."""
        self._file.flush()
        self._committed = True

    def discard(self) -> None:
        """Take back what was written, where that can be done."""
        if self._begun and not self._committed and self._start is not None:
            self._file.seek(self._start)
            self._file.truncate()

    @property
    def sha256(self) -> str:
        """The digest of what came."""
        return self._hash.hexdigest()
