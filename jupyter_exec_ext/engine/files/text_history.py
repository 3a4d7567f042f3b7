"""Text history: the last texts of one session's small files, so that a run's changes can be shown line by line.

It is in memory, within a bound, and goes with the session. `ChangeWatch` finds the changes and reads the texts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...models import FileChange
from .confinement import open_file

#: Larger files, and those that are no text in UTF-8, have no history.
MAX_TEXT_BYTES = 64 * 1024
#: Files of one run whose texts are kept, the first by path.
MAX_TEXTS_PER_RUN = 20
_MAX_HISTORY_BYTES = 1024 * 1024
_MAX_VERSIONS = 10


def read_text(root: int, path: str, found: os.stat_result) -> str | None:
    """Return the text of a small file below `root`; None if it is none, or is no longer as it was `found`."""
    if found.st_size > MAX_TEXT_BYTES:
        return None
    try:
        descriptor, now = open_file(root, path.split("/"))
        try:
            content = os.read(descriptor, MAX_TEXT_BYTES)
        finally:
            os.close(descriptor)
        is_same = (now.st_ino, now.st_mtime_ns, now.st_size) == (found.st_ino, found.st_mtime_ns, len(content))
        return content.decode() if is_same and b"\0" not in content else None
    except (OSError, UnicodeDecodeError):  # code has removed it meanwhile, or it is no text
        return None


@dataclass(frozen=True, slots=True)
class Version:
    """Text of a file at one time; `is_new` if a run has made the file."""

    mtime: str
    text: str
    is_new: bool


class TextHistory:
    """Versions of files by path; beyond the bound, the file that was changed longest ago is dropped."""

    def __init__(self) -> None:
        self._versions: dict[str, list[Version]] = {}
        self._bytes = 0

    def add(self, path: str, version: Version | None) -> None:
        """Add a file's present version; None if its text is not known, with which earlier ones are of no use."""
        earlier = self._drop(path)
        if version is not None:
            self._versions[path] = versions = [*earlier, version][-_MAX_VERSIONS:]
            self._bytes += _size(versions)
        while self._bytes > _MAX_HISTORY_BYTES:
            self._drop(next(iter(self._versions)))

    def _drop(self, path: str) -> list[Version]:
        versions = self._versions.pop(path, [])
        self._bytes -= _size(versions)
        return versions

    def clear(self) -> None:
        """Forget everything."""
        self._versions.clear()
        self._bytes = 0

    def change(self, path: str, mtime: str) -> FileChange | None:
        """Return the change that left a file with this time, or without one the last; None if it is not kept."""
        versions = self._versions.get(path, [])
        for at in reversed(range(len(versions))):
            if mtime in ("", versions[at].mtime):
                version = versions[at]
                if version.is_new or at > 0:
                    return FileChange(path, None if version.is_new else versions[at - 1].text, version.text)
                return None
        return None


def _size(versions: list[Version]) -> int:
    return sum(len(version.text) for version in versions) + 200 * len(versions)
