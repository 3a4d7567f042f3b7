"""Conversion of an execution's outputs to an executor's result: text for the model, and files for the rest."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import Execution
from ..models.mime_bundles import extension, pieces_of_bundle
from ..models.model_content import joined, named, pieces_of, shortened_to_chars
from ..models.plain_text import Ansi, TextCleaner


class OutputDirectory:
    """Directory for pictures, pages and data. An instance is the ``save`` of `Execution.to_text` and `to_content`.

    Parameters
    ----------
    path : Path
        The directory, which must exist.
    stem : str, optional
        Files are named ``<stem>-<number>.<extension>`` and never replace one; by default names are random.
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
            If it cannot be saved; no partial file remains.
        """
        for name in self._names():
            path = (self._path / f"{name}.{extension(mime_type)}").absolute()
            with contextlib.suppress(FileExistsError):
                # Creating exclusively: another executor may save to the same directory.
                self._write(path, content)
                self.files.append(str(path))
                return str(path)
        raise AssertionError("there is always another name")

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        with path.open("xb") as file, contextlib.ExitStack() as undo:
            undo.callback(path.unlink)
            file.write(content)
            file.flush()
            undo.pop_all()

    def text(self, data: Mapping[str, Any]) -> list[str]:
        """Return the text of one MIME bundle in pieces; other content is saved and its path is given."""
        return [named(piece) for piece in pieces_of_bundle(data, self)]

    def _names(self) -> Iterator[str]:
        for number in itertools.count(1):
            yield f"{self._stem}-{number}" if self._stem else uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Options of the text that an executor gives to a model.

    Parameters
    ----------
    max_text_chars : int or None
        Limit of the text in characters. Longer text keeps its head and tail, with a marker between them; None is for
        no limit.
    ansi : {"remove", "keep"}
        As for `Execution.to_text`.

    Raises
    ------
    ValueError
        If a value is invalid.
    """

    max_text_chars: int | None = None
    ansi: Ansi = "remove"

    def __post_init__(self) -> None:
        if self.max_text_chars is not None and self.max_text_chars < 1:
            raise ValueError("max_text_chars must be greater than or equal to 1.")
        TextCleaner(self.ansi)  # raises the error for another value


class ResultCollector:
    """Collects the text and the files of one or more executions.

    Parameters
    ----------
    output_dir : Path
        Directory for pictures, pages and data, each under a new name.
    options : TextOptions, optional
        Limit and form of the text.
    """

    def __init__(self, output_dir: Path, options: TextOptions | None = None) -> None:
        self._directory = OutputDirectory(output_dir)
        self._max_text_chars = None if options is None else options.max_text_chars
        self._cleaner = TextCleaner("remove" if options is None else options.ansi)
        self._pieces: list[str] = []

    @property
    def files(self) -> list[str]:
        """The absolute paths of the files saved so far."""
        return self._directory.files

    def add(self, execution: Execution) -> None:
        """Add all outputs of an execution in order, and notes on why it was stopped and on lost output."""
        for piece in pieces_of(execution, self._directory):
            self.note(named(piece))

    def note(self, text: str) -> None:
        """Add a line that is not output."""
        self._pieces.append(self._cleaner.clean(text))

    @property
    def text(self) -> str:
        """The text so far; only a line break is added, after a piece that does not end with one."""
        text = joined([*self._pieces, self._cleaner.note])
        return text if self._max_text_chars is None else shortened_to_chars(text, self._max_text_chars)
