"""Files of an executor's ACA session: uploads, downloads, and copies of the files that code has written."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ExecError, InvalidRequest, NotFound
from ..protocol.file_format import ACAFile, relative_path

if TYPE_CHECKING:
    from ..client.aio.pool_client import AsyncACAClient

# Code decides how many and how large its files are, so the files saved after one call are bounded.
MAX_SAVED_FILES = 100
MAX_SAVED_BYTES = 256 * 1024 * 1024
_MAX_NAMED_FILES = 10  # in the note on files that are not saved
_RECURSIVE_SINCE = "2025-10-02-preview"


class PoolFiles:
    """The files in ``/mnt/data`` of one session.

    Parameters
    ----------
    is_new : bool
        Whether the session cannot have files yet.
    """

    def __init__(self, client: AsyncACAClient, identifier: str, *, is_new: bool) -> None:
        self._client = client
        self._identifier = identifier
        self._known: dict[str, ACAFile] | None = {} if is_new else None

    async def names(self) -> list[str]:
        """Return their paths."""
        return list(await self._list())

    async def upload(self, directory: Path, files: Sequence[Path | str]) -> None:
        """Upload local files under their own names."""
        places = [directory / file for file in files]
        for file, place in zip(files, places, strict=True):
            if not place.is_file():
                raise FileNotFoundError(f"{file} does not exist")
        repeated = [name for name, count in Counter(place.name for place in places).items() if count > 1]
        if repeated:
            raise ValueError(f"more than one file would be uploaded as {', '.join(repeated)}; rename all but one")
        # Files that the executor uploads must not be saved as the code's own.
        self._known = None
        for place in places:
            await self._client.upload(self._identifier, place.name, place)

    async def download(self, directory: Path, files: Sequence[Path | str]) -> list[str]:
        """Download files to their places below a directory, and return these."""
        places = []
        for file in files:
            path = file.as_posix() if isinstance(file, Path) else file
            place = _local_place(directory, path)
            if place.is_dir():
                raise IsADirectoryError(f"{place} is a directory")
            try:
                await self._client.download(self._identifier, path, place)
            except NotFound as error:
                raise FileNotFoundError(f"{file} does not exist") from error
            places.append(str(place))
        return places

    async def remember(self) -> None:
        """Record the present files, before code runs."""
        if self._known is None:
            self._known = await self._list()

    async def save_new(self, directory: Path) -> tuple[list[str], str]:
        """Save the files written since `remember`, under unused names; return their paths, and a note for the model.

        Files that exceed a limit are skipped, and the note names them. Nothing is saved after an upload meanwhile: its
        files cannot be told from the code's own.
        """
        before = self._known
        if before is None:
            return [], "Files are not saved: others were uploaded at the same time"
        try:
            now = await self._list()
        except ExecError as error:
            return [], f"Files are not saved: {error.message}"  # the output of the code must not be lost as well
        self._known = now
        # Size and time count, so a file that was replaced is new, too.
        written = [file for path, file in sorted(now.items()) if before.get(path) != file]
        saved: list[str] = []
        lines: list[str] = []
        skipped: list[ACAFile] = []
        room, tries_left = MAX_SAVED_BYTES, MAX_SAVED_FILES
        for file in written:
            if tries_left == 0 or file.size_bytes > room:
                skipped.append(file)
                continue
            tries_left -= 1
            try:
                place = await self._save(directory, file.path)
            except (ExecError, OSError) as error:
                lines.append(f"File {file.path!r} is not saved: {error}")
            else:
                room -= file.size_bytes
                saved.append(str(place))
                lines.append(f"File {file.path!r} saved to {place}")
        if skipped:
            lines.append(_skipped_note(skipped))
        return saved, "\n".join(lines)

    async def _save(self, directory: Path, path: str) -> Path:
        place = _reserve_place(directory, path)
        with contextlib.ExitStack() as undo:  # cancellation, too, must not leave an empty file
            undo.callback(place.unlink)
            await self._client.download(self._identifier, path, place)
            undo.pop_all()
        return place

    async def _list(self) -> dict[str, ACAFile]:
        recursive = self._client.api_version >= _RECURSIVE_SINCE
        files = await self._client.files(self._identifier, recursive=recursive)
        return {file.path: file for file in files if not file.is_directory}


def _skipped_note(skipped: Sequence[ACAFile]) -> str:
    """Return a note that names the first files that exceed a limit, with their sizes."""
    names = [f"{file.path[:200]!r} ({file.size_bytes:,} bytes)" for file in skipped[:_MAX_NAMED_FILES]]
    if len(skipped) > len(names):
        names.append(f"{len(skipped) - len(names):,} more")
    return (
        f"Files are not saved: {', '.join(names)}; after one call, at most {MAX_SAVED_FILES} files with"
        f" {MAX_SAVED_BYTES:,} bytes together are"
    )


def _local_place(directory: Path, path: str) -> Path:
    """Return the place of a session's file below a local directory, and make the directories of its path."""
    parts = relative_path(path).split("/")
    # On Windows, a name such as `a\b` or `C:` has a meaning of its own.
    if any(Path(part).name != part for part in parts):
        raise InvalidRequest(f"{path[:200]!r} does not name a file on this system")
    place = directory.joinpath(*parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _reserve_place(directory: Path, path: str) -> Path:
    """Reserve an unused place for a session's file with an empty file; add a number if the path is taken."""
    wanted = _local_place(directory, path).absolute()
    for number in itertools.count(2):
        try:
            wanted.touch(exist_ok=False)  # two executors may share the directory
        except FileExistsError:
            wanted = wanted.with_name(f"{Path(path).stem}-{number}{wanted.suffix}")
        else:
            return wanted
    raise AssertionError("there is always another name")
