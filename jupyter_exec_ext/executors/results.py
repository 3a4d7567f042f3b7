"""From an execution's outputs to what an executor gives: text for the model, and files for what is not text."""

from __future__ import annotations

import base64
import binascii
import contextlib
import itertools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..models import Execution, ExecutionState
from ..wire.jsontext import dumps

# In the order of preference; one bundle is saved once.
_IMAGES = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "image/bmp": "bmp",
    "application/pdf": "pdf",
}
_TEXTS = ("text/markdown", "text/latex", "text/plain")
# `<Figure size 640x480 with 1 Axes>`: says nothing where the thing itself is there.
_OBJECT_REPR = re.compile(r"<[^<>]*>\s*")


class BundleSaver:
    """Turns MIME bundles into text, saving what is not text.

    Parameters
    ----------
    output_dir : Path
        Where images and HTML pages are saved; must exist.
    stem : str, optional
        Files are called ``<stem>-<number>.<extension>``, never replacing one; without it they get random names.
    """

    def __init__(self, output_dir: Path, stem: str | None = None) -> None:
        self._output_dir = output_dir
        self._stem = stem
        self.files: list[str] = []

    def text(self, data: Mapping[str, Any]) -> list[str]:
        """Return the text of one bundle, in lines or pieces; its richest form is saved if that is no text."""
        image = next((mime for mime in _IMAGES if mime in data), None)
        if image is not None:
            path = self._save_image(image, str(data[image]))
            if path is not None:
                return [f"Image data saved to {path}"]
        text = next((data[mime] for mime in _TEXTS if mime in data), None)
        if text is None and "application/json" in data:
            text = dumps(data["application/json"])
        if "text/html" not in data:
            return [] if text is None else [str(text)]
        saved = f"HTML data saved to {self._save('html', str(data['text/html']).encode('utf-8', 'replace'))}"
        return [saved] if text is None or _OBJECT_REPR.fullmatch(str(text)) else [str(text), saved]

    def _save_image(self, mime: str, value: str) -> str | None:
        if mime == "image/svg+xml" and value.lstrip().startswith("<"):
            return self._save("svg", value.encode("utf-8", "replace"))
        try:
            return self._save(_IMAGES[mime], base64.b64decode("".join(value.split()), validate=True))
        except binascii.Error:
            return None

    def _save(self, extension: str, content: bytes) -> str:
        for name in self._names():
            path = (self._output_dir / f"{name}.{extension}").absolute()
            with contextlib.suppress(FileExistsError), path.open("xb") as file:
                file.write(content)
                self.files.append(str(path))
                return str(path)
        raise AssertionError("there is always another name")

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
        self._saver = BundleSaver(output_dir)
        self._pieces: list[str] = []

    @property
    def files(self) -> list[str]:
        """The absolute paths of the files saved so far."""
        return self._saver.files

    def add(self, execution: Execution) -> None:
        """Take in all outputs of an execution, in order, why it was stopped, if it was, and whether any were lost."""
        for output in execution.outputs:
            self._pieces.extend(self._output(output))
        if execution.state in _STOPPED and execution.reason:
            self.note(_STOPPED[execution.state] + execution.reason + _state_note(execution))
        if execution.truncated is not None and execution.truncated.upstream:
            self.note(_INCOMPLETE)

    def note(self, text: str) -> None:
        """Add a line of our own."""
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """All text so far; what does not end a line is followed by a line break, and nothing else is put in."""
        joined = ""
        for piece in self._pieces:
            joined += piece if not joined or joined.endswith("\n") else f"\n{piece}"
        return joined

    def _output(self, output: Mapping[str, Any]) -> Iterable[str]:
        kind = output.get("output_type")
        if kind == "stream":
            return [str(output["text"])]
        if kind == "error":
            return ["\n".join(output["traceback"]) or f"{output['ename']}: {output['evalue']}"]
        return self._saver.text(output.get("data", {}))


_INCOMPLETE = "Incomplete: some output was lost on its way (dropped by the server, or with a cut connection)"
_STOPPED = {
    ExecutionState.TIMEOUT: "Timeout: ",
    ExecutionState.CANCELLED: "Cancelled: ",
    ExecutionState.INTERRUPTED: "Interrupted: ",
    ExecutionState.SERVER_RESTARTED: "Lost: ",
    ExecutionState.REJECTED: "Not run: ",
    ExecutionState.TOKEN_REVOKED: "Stopped: ",
}


def _state_note(execution: Execution) -> str:
    kept = execution.session_state_preserved
    return "; the session's variables were kept" if kept else "; the session's variables were lost"
