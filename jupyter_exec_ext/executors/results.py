"""From an execution's outputs to what an executor gives: text for the model, and files for what is not text."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..models import Execution
from ..models.content import EXTENSIONS, joined, named, pieces_of, pieces_of_bundle


class OutputDirectory:
    """Saves pictures and pages; an instance is what `Execution.to_text` and `to_content` take as ``save``.

    Parameters
    ----------
    path : Path
        Must exist.
    stem : str, optional
        Files are called ``<stem>-<number>.<extension>``, never replacing one; without it they get random names.
    """

    def __init__(self, path: Path, stem: str | None = None) -> None:
        self._path = path
        self._stem = stem
        self.files: list[str] = []

    def __call__(self, mime_type: str, content: bytes) -> str:
        """Save a file and return its absolute path.

        Raises
        ------
        OSError
            If it cannot be saved; nothing of it is left then.
        """
        for name in self._names():
            path = (self._path / f"{name}.{EXTENSIONS[mime_type]}").absolute()
            with contextlib.suppress(FileExistsError):
                self._write(path, content)
                self.files.append(str(path))
                return str(path)
        raise AssertionError("there is always another name")

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        with path.open("xb") as file:
            try:
                file.write(content)
                file.flush()
            except BaseException:
                path.unlink()
                raise

    def text(self, data: Mapping[str, Any]) -> list[str]:
        """Return the text of one MIME bundle, in lines or pieces; its richest form is saved if that is no text."""
        return [named(piece) for piece in pieces_of_bundle(data, self)]

    def _names(self) -> Iterator[str]:
        for number in itertools.count(1):
            yield f"{self._stem}-{number}" if self._stem else uuid.uuid4().hex


class ResultCollector:
    """Collects the text and the files of one or more executions.

    Parameters
    ----------
    output_dir : Path
        Where images and HTML pages are saved, each under a new name.
    """

    def __init__(self, output_dir: Path) -> None:
        self._directory = OutputDirectory(output_dir)
        self._pieces: list[str] = []

    @property
    def files(self) -> list[str]:
        """The absolute paths of the files saved so far."""
        return self._directory.files

    def add(self, execution: Execution) -> None:
        """Take in all outputs of an execution, in order, why it was stopped, if it was, and whether any were lost."""
        self._pieces.extend(map(named, pieces_of(execution, self._directory)))

    def note(self, text: str) -> None:
        """Add a line of our own."""
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """All text so far; what does not end a line is followed by a line break, and nothing else is put in."""
        return joined(self._pieces)
