"""From an execution's outputs to what an executor gives: text for the model, and files for what is not text."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import Execution
from ..models.mime_bundles import pieces_of_bundle
from ..models.mime_types import extension
from ..models.model_content import joined, named, pieces_of, shortened_to_chars
from ..models.plain_text import Ansi, TextCleaner


class OutputDirectory:
    """Saves pictures, pages and data; an instance is what `Execution.to_text` and `to_content` take as ``save``.

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
            path = (self._path / f"{name}.{extension(mime_type)}").absolute()
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
        """Return the text of one MIME bundle, in lines or pieces; what is not text is saved and named by its path."""
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
        Of longer text, the head and the tail are kept, with a marker between them; None for all of it.
    ansi : {"remove", "keep"}
        As for `Execution.to_text`.

    Raises
    ------
    ValueError
        For a wrong value.
    """

    max_text_chars: int | None = None
    ansi: Ansi = "remove"

    def __post_init__(self) -> None:
        if self.max_text_chars is not None and self.max_text_chars < 1:
            raise ValueError("max_text_chars must be greater than or equal to 1.")
        TextCleaner(self.ansi)


class ResultCollector:
    """Collects the text and the files of one or more executions.

    Parameters
    ----------
    output_dir : Path
        Where pictures, pages and data are saved, each under a new name.
    options : TextOptions, optional
        How the text is given.
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
        """Take in all outputs of an execution, in order, why it was stopped, if it was, and whether any were lost."""
        for piece in pieces_of(execution, self._directory):
            self.note(named(piece))

    def note(self, text: str) -> None:
        """Add a line of our own."""
        self._pieces.append(self._cleaner.clean(text))

    @property
    def text(self) -> str:
        """All text so far; what does not end a line is followed by a line break, and nothing else is put in."""
        text = joined([*self._pieces, self._cleaner.note])
        return text if self._max_text_chars is None else shortened_to_chars(text, self._max_text_chars)
