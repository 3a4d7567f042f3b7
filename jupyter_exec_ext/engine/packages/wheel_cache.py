"""Cache of verified wheels, for all sessions: the server writes it, and sandboxes see its wheels read-only.

Each set of wheels is kept under a key for its requirements, with the wheels' SHA-256, which is checked at each use.
Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...system.removal import remove_tree

#: After this time, requirements are resolved again: there may be newer versions.
FRESH_SECONDS = 24 * 3600.0
_READ_BYTES = 1024 * 1024


class WheelCache:
    """Wheels below a directory, the least recently used of which go when there are too many.

    Parameters
    ----------
    directory : Path
        Created when it is first needed, for this user alone.
    max_bytes : int
        Limit on the size of all wheels.

    Attributes
    ----------
    wheels : Path
        The directory that sessions see.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.wheels = directory / "wheels"
        self.max_bytes = max_bytes
        self._sets = directory / "sets"
        self._incoming = directory / "incoming"

    def prepare(self) -> None:
        """Create the directories if they are missing."""
        for directory in (self.wheels, self._sets, self._incoming):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make_incoming(self) -> Path:
        """Make an empty directory for a download; the caller removes it with `remove_incoming`."""
        self.prepare()
        return Path(tempfile.mkdtemp(dir=self._incoming))

    def remove_incoming(self, directory: Path) -> None:
        """Remove the directory of a download."""
        remove_tree(directory)

    def find(self, key: str) -> list[Path] | None:
        """Return the wheels of a set, each with the content that it had when it was added; None if one has not."""
        try:
            data = json.loads((self._sets / key).read_text())
        except (FileNotFoundError, ValueError):  # a power failure can leave an empty file
            return None
        if not 0 <= time.time() - data["at"] < FRESH_SECONDS:
            return None
        found = [self.wheels / name for name in data["wheels"]]
        for path, digest in zip(found, data["wheels"].values(), strict=True):
            try:
                if _digest(path) != digest:
                    return None
                os.utime(path)  # the time of the last use
            except OSError:  # it was evicted; or code under Landlock has changed its mode, which that cannot prevent
                return None
        return found

    def add(self, key: str, downloaded: Sequence[Path]) -> list[Path]:
        """Move downloaded wheels into the cache, and return their new places."""
        digests, added = {}, []
        for path in downloaded:
            digests[path.name] = _digest(path)
            path.chmod(0o444)
            os.utime(path)
            added.append(path.replace(self.wheels / path.name))
        written = downloaded[0].parent / "set" if downloaded else self._incoming / key
        written.write_text(json.dumps({"at": time.time(), "wheels": digests}))
        written.replace(self._sets / key)
        self._evict(digests)
        return added

    def _evict(self, kept: Mapping[str, Any]) -> None:
        found = sorted(((path, path.stat()) for path in self.wheels.iterdir()), key=lambda item: item[1].st_mtime)
        too_many = sum(status.st_size for _, status in found) - self.max_bytes
        for path, status in found:
            if too_many > 0 and path.name not in kept:
                path.unlink()
                too_many -= status.st_size
        for path in self._sets.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > FRESH_SECONDS:
                    path.unlink()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as opened:
        while part := opened.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()
