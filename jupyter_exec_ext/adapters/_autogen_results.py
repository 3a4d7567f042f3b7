"""Results of AutoGen's executors: their record, and their way to join outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autogen_core.code_executor import CodeResult

from ..executors.code_results import ResultCollector, TextOptions
from ..models import Execution
from ..models.mime_bundles import ImageContent, Save, pieces_of_bundle
from ..models.model_content import named, pieces_of, shortened_to_chars


@dataclass
class JupyterCodeResult(CodeResult):
    """Result of running code blocks.

    Parameters
    ----------
    exit_code : int
        0 if all blocks ran to their end without an error, 1 otherwise.
    output : str
        Their text output, including the output before an error, and the error.
    output_files : list of Path
        Absolute paths of displayed images and pages, which were saved.
    """

    output_files: list[Path] = field(default_factory=list)


class AutoGenResultCollector(ResultCollector):
    """Collector of text and files in AutoGen's way: a line break between outputs, and objects by their text.

    Parameters
    ----------
    output_dir : Path
        Directory in which pictures, pages and data are saved, each under a new name.
    options : TextOptions, optional
        Format of the text.
    names_files : bool
        Whether the path of a saved file follows the text of its object.
    """

    def __init__(self, output_dir: Path, options: TextOptions | None = None, *, names_files: bool = False) -> None:
        super().__init__(output_dir, options)
        self._names_files = names_files

    def add(self, execution: Execution) -> None:
        """Add all outputs of an execution, in order, with the reason if it was stopped, and a mark if any were lost."""
        pieces = pieces_of(execution, self._directory, self._of_bundle)
        self.note("\n".join(map(named, pieces)))

    def _of_bundle(self, data: Mapping[str, Any], save: Save | None) -> Iterator[str | ImageContent]:
        saved_before = len(self.files)
        # Always, because this saves the pictures and pages.
        described = list(pieces_of_bundle(data, save))
        if "text/plain" not in data:
            yield from described  # AutoGen returns the JSON of such a value, which for a picture is its base64
            return
        yield str(data["text/plain"])
        if self._names_files:
            yield from self.files[saved_before:]

    @property
    def text(self) -> str:
        """All text so far, with a line break between any two blocks, also after one that ends a line itself."""
        text = "\n".join([*self._pieces, *filter(None, [self._cleaner.note])])
        return text if self._max_text_chars is None else shortened_to_chars(text, self._max_text_chars)
