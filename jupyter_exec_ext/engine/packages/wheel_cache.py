"""Cache of verified wheels, for all sessions: the server writes it, and sandboxes see its wheels read-only.

Each set of wheels is kept under a key for its requirements, with the wheels' SHA-256, which is checked at each use. A
wheel that is there keeps its SHA-256: another one of the same name is refused. Wheels of different sources have
directories of their own. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import PackagesNotFound
from ...system.removal import remove_tree

#: After this time, requirements are resolved again: there may be newer versions.
FRESH_SECONDS = 24 * 3600.0
_READ_BYTES = 1024 * 1024
# Much longer than a download and the hashing after it may take: other servers may use the same cache.
_STALE_SECONDS = 3600.0


# Of all caches of this process, whose eviction is a common one.
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class CachedWheel:
    """Wheel in the cache.

    Parameters
    ----------
    path : Path
        Its file.
    sha256 : str
        The SHA-256 that it had when it was downloaded, in hexadecimal.
    unpacked_bytes : int
        How much it has when it is installed.
    """

    path: Path
    sha256: str
    unpacked_bytes: int


class WheelCache:
    """Wheels of one source, the least recently used of which go when all sources together have too many.

    Parameters
    ----------
    directory : Path
        Created when it is first needed, for this user alone.
    max_bytes : int
        Limit on the size of all wheels.
    source : str
        The wheelhouse, or the configuration of the index.

    Attributes
    ----------
    wheels : Path
        The directory that sessions see.
    """

    def __init__(self, directory: Path, max_bytes: int, source: str) -> None:
        self.max_bytes = max_bytes
        self._root = directory
        place = directory / hashlib.sha256(source.encode()).hexdigest()[:32]
        self.wheels = place / "wheels"
        self._digests = place / "digests"
        self._sets = place / "sets"
        self._incoming = place / "incoming"

    def prepare(self) -> None:
        """Create the directories if they are missing, and remove the downloads that a killed server has left."""
        for directory in (self.wheels, self._digests, self._sets, self._incoming):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._root.glob("*/incoming/*"):
            with suppress(OSError):  # another server has removed it
                if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                    remove_tree(path)

    def make_incoming(self) -> Path:
        """Make an empty directory for a download; the caller removes it with `remove_incoming`."""
        self.prepare()
        return Path(tempfile.mkdtemp(dir=self._incoming))

    def remove_incoming(self, directory: Path) -> None:
        """Remove the directory of a download."""
        remove_tree(directory)

    def find(self, key: str) -> list[CachedWheel] | None:
        """Return the wheels of a set, each with the content that it had when it was added; None if one has not."""
        try:
            data = json.loads((self._sets / key).read_text())
            is_fresh = 0 <= time.time() - data["at"] < FRESH_SECONDS
            found = [CachedWheel(self.wheels / name, *values) for name, *values in data["wheels"]]
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # a power failure can leave part of a file
            return None
        if not is_fresh:
            return None
        for wheel in found:
            try:
                if _digest(wheel.path) != wheel.sha256:
                    return None
                os.utime(wheel.path)  # the time of the last use
            except OSError:  # it was evicted; or code under Landlock has changed its mode, which that cannot prevent
                return None
        return found

    def add(self, key: str, downloaded: Mapping[Path, int]) -> list[CachedWheel]:
        """Move downloaded wheels into the cache.

        Parameters
        ----------
        key : str
            The key of the set.
        downloaded : mapping of Path to int
            The unpacked size of each wheel.

        Raises
        ------
        PackagesNotFound
            If the cache has a wheel of the same name that had another content when it was downloaded.
        """
        with _LOCK:
            wheels = [
                (path, CachedWheel(self.wheels / path.name, _digest(path), downloaded[path])) for path in downloaded
            ]
            for path, wheel in wheels:
                self._note_digest(path, wheel)
            for path, wheel in wheels:
                path.chmod(0o444)
                os.utime(path)
                path.replace(wheel.path)  # of the same content, or of one that was changed afterwards
            added = [wheel for _, wheel in wheels]
            written = Path(tempfile.mkdtemp(dir=self._incoming)) / "set"
            rows = [(wheel.path.name, wheel.sha256, wheel.unpacked_bytes) for wheel in added]
            written.write_text(json.dumps({"at": time.time(), "wheels": rows}))
            written.replace(self._sets / key)
            written.parent.rmdir()
            self._evict({wheel.path for wheel in added})
        return added

    def _note_digest(self, path: Path, wheel: CachedWheel) -> None:
        """Note the SHA-256 of a new wheel, or make sure that it is the one that was noted."""
        noted, digest = self._digests / wheel.path.name, path.with_name("digest")
        digest.write_text(wheel.sha256)
        try:
            os.link(digest, noted)  # unlike a replacement, it fails if another server was faster
        except FileExistsError:
            known = noted.read_text()
            if len(known) == len(wheel.sha256) and known != wheel.sha256:
                raise PackagesNotFound(
                    f"'packages': {wheel.path.name} has another content than when the server first downloaded it; ask "
                    "its administrator, who can empty the directory of package_cache if that is right"
                ) from None
            digest.replace(noted)  # the same, or what a power failure has left
        else:
            digest.unlink()

    def _evict(self, kept: Collection[Path]) -> None:
        """Remove wheels that have not been used for the longest time, and old sets; other servers may do the same."""
        found = []
        for path in self._root.glob("*/wheels/*"):
            with suppress(FileNotFoundError):
                found.append((path.stat(), path))
        too_many = sum(status.st_size for status, _ in found) - self.max_bytes
        for status, path in sorted(found, key=lambda item: item[0].st_mtime):
            if too_many > 0 and path not in kept:
                path.unlink(missing_ok=True)
                (path.parent.parent / "digests" / path.name).unlink(missing_ok=True)
                too_many -= status.st_size
        for path in self._root.glob("*/sets/*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > FRESH_SECONDS:
                    path.unlink()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as opened:
        while part := opened.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()
