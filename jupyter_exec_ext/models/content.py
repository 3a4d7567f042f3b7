"""What a language model can use of an execution: text of limited size, pictures, and the names of files. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .executions import Execution

#: Takes a MIME type and the content of a file, saves it and returns where.
Save = Callable[[str, bytes], str]

MAX_TEXT_BYTES, MAX_TRACEBACK_BYTES, MAX_IMAGES, MAX_IMAGE_BYTES = 20_000, 4_000, 8, 5_000_000
#: What is a picture or page of its own, in the order of preference, and the extension of its file.
EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "image/bmp": "bmp",
    "application/pdf": "pdf",
    "text/html": "html",
}
_SEEN_BY_MODELS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTS = ("text/markdown", "text/latex", "text/plain")
# `<Figure size 640x480 with 1 Axes>`: says nothing where the thing itself is there.
_OBJECT_REPR = re.compile(r"<[^<>]*>\s*")
_MAX_FILES = 50
_ENDS = {
    "timeout": "Timeout: ",
    "cancelled": "Cancelled: ",
    "interrupted": "Interrupted: ",
    "server_restarted": "Lost: ",
    "rejected": "Not run: ",
    "token_revoked": "Stopped: ",
}
_INCOMPLETE = "Incomplete: some output was lost on its way (dropped by the server, or with a cut connection)"


@dataclass(frozen=True, slots=True)
class TextContent:
    """A text for a model."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageContent:
    """A picture of a kind that models see: PNG, JPEG, GIF or WebP.

    Parameters
    ----------
    data : bytes
        The file itself, not its base64.
    """

    mime_type: str
    data: bytes

    @property
    def base64(self) -> str:
        """The data as ASCII text."""
        return base64.b64encode(self.data).decode("ascii")

    @property
    def data_url(self) -> str:
        """The picture as a URL that holds it."""
        return f"data:{self.mime_type};base64,{self.base64}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mime_type!r}, {len(self.data):,} bytes)"


Content = TextContent | ImageContent


def to_text(execution: Execution, *, max_bytes: int = MAX_TEXT_BYTES, save: Save | None = None) -> str:
    """Return all that an execution gave as text; see `Execution.to_text`."""
    pieces = [*pieces_of(execution, save, MAX_TRACEBACK_BYTES), *_closing_notes(execution)]
    return shortened(joined(map(named, pieces)), max_bytes) or "(no output)"


def to_content(
    execution: Execution,
    *,
    max_text_bytes: int = MAX_TEXT_BYTES,
    max_images: int = MAX_IMAGES,
    max_image_bytes: int = MAX_IMAGE_BYTES,
    save: Save | None = None,
) -> list[Content]:
    """Return what an execution gave as texts and pictures, in order; see `Execution.to_content`."""
    runs: list[list[str] | ImageContent] = []
    shown = 0
    for piece in [*pieces_of(execution, save, MAX_TRACEBACK_BYTES), *_closing_notes(execution)]:
        if isinstance(piece, ImageContent) and shown < max_images and len(piece.data) <= max_image_bytes:
            runs.append(piece)
            shown += 1
        elif runs and isinstance(runs[-1], list):
            runs[-1].append(named(piece))
        else:
            runs.append([named(piece)])
    texts = {index: joined(run) for index, run in enumerate(runs) if isinstance(run, list)}
    total = sum(len(text.encode("utf-8", "replace")) for text in texts.values())
    # Each text keeps its share, so that the last ones are there as well.
    share = min(1.0, max_text_bytes / total) if total else 1.0
    content: list[Content] = []
    for index, run in enumerate(runs):
        if isinstance(run, ImageContent):
            content.append(run)
        elif texts[index]:
            size = len(texts[index].encode("utf-8", "replace"))
            content.append(TextContent(shortened(texts[index], int(size * share))))
    return content or [TextContent("(no output)")]


def pieces_of(
    execution: Execution, save: Save | None, max_traceback_bytes: int | None = None
) -> Iterator[str | ImageContent]:
    """Return an execution's outputs in order, and why it was stopped, if it was.

    Parameters
    ----------
    save : callable or None
        Where pictures and pages go, which are then named by their paths.
    """
    for output in execution.outputs:
        kind = output.get("output_type")
        if kind == "stream":
            yield str(output["text"])
        elif kind == "error":
            error = "\n".join(output["traceback"]) or f"{output['ename']}: {output['evalue']}"
            yield error if max_traceback_bytes is None else shortened(error, max_traceback_bytes)
        else:
            yield from pieces_of_bundle(output.get("data", {}), save)
    if execution.reason and execution.state.value in _ENDS:
        kept = "kept" if execution.session_state_preserved else "lost"
        yield f"{_ENDS[execution.state.value]}{execution.reason}; the session's variables were {kept}"
    if execution.truncated is not None and execution.truncated.upstream:
        yield _INCOMPLETE


def pieces_of_bundle(data: Mapping[str, Any], save: Save | None) -> Iterator[str | ImageContent]:
    """Return what of one MIME bundle a model can use: its picture, or else its text."""
    for mime in EXTENSIONS:
        if mime in data and mime != "text/html":
            picture = _decoded(mime, str(data[mime]))
            if picture is not None:
                yield from _picture(mime, picture, data, save)
                return
    text = next((str(data[mime]) for mime in _TEXTS if mime in data), None)
    if text is None and "application/json" in data:
        text = json.dumps(data["application/json"], ensure_ascii=False, separators=(",", ":"))
    html = data.get("text/html")
    says_nothing = text is None or _OBJECT_REPR.fullmatch(text)
    if text is not None and not (says_nothing and html is not None):
        yield text
    if html is None:
        return
    if save is not None:
        yield _saved("HTML data", "text/html", str(html).encode("utf-8", "replace"), save)
    elif says_nothing:
        yield str(html)


def _picture(mime: str, content: bytes, data: Mapping[str, Any], save: Save | None) -> Iterator[str | ImageContent]:
    if save is not None:
        yield _saved("Image data", mime, content, save)
    elif mime in _SEEN_BY_MODELS:
        yield ImageContent(mime, content)
    else:
        text = str(data.get("text/plain", ""))
        if text and not _OBJECT_REPR.fullmatch(text):
            yield text
        yield _not_shown(mime, content)


def _saved(what: str, mime: str, content: bytes, save: Save) -> str:
    """Save a file and return the line that says where, or why it could not be: the rest of the result stays."""
    try:
        return f"{what} saved to {save(mime, content)}"
    except OSError as error:
        return f"[{mime}, {len(content):,} bytes, could not be saved: {error.strerror or error}]"


def _decoded(mime: str, value: str) -> bytes | None:
    if mime == "image/svg+xml" and value.lstrip().startswith("<"):
        return value.encode("utf-8", "replace")
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _closing_notes(execution: Execution) -> Iterator[str]:
    truncated = execution.truncated
    if truncated is not None and truncated.dropped_bytes:
        yield f"Left out: {truncated.dropped_bytes:,} bytes beyond the output limit of {truncated.max_output_bytes:,}"
    if execution.files:
        named = [f"{file.path} ({file.size_bytes:,} bytes)" for file in execution.files[:_MAX_FILES]]
        more = len(execution.files) - len(named) + execution.files_omitted
        yield f"Files written: {', '.join(named)}{f' and {more} more' if more else ''}"


def named(piece: str | ImageContent) -> str:
    """Return a text, or what kind of picture is in its place."""
    return piece if isinstance(piece, str) else _not_shown(piece.mime_type, piece.data)


def _not_shown(mime: str, content: bytes) -> str:
    return f"[{mime}, {len(content):,} bytes, not shown]"


def joined(pieces: Iterable[str]) -> str:
    """Return all text; what does not end a line is followed by a line break, and nothing else is put in."""
    whole: list[str] = []
    for piece in filter(None, pieces):
        if whole and not whole[-1].endswith("\n"):
            whole.append("\n")
        whole.append(piece)
    return "".join(whole)


def shortened(text: str, max_bytes: int) -> str:
    """Return a text's head and tail, with a marker between them that says how much was left out.

    Parameters
    ----------
    max_bytes : int
        In UTF-8, without the marker.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= max_bytes:
        return text
    head = encoded[: max_bytes // 2].decode("utf-8", "ignore")
    tail = encoded[len(encoded) - (max_bytes - max_bytes // 2) :].decode("utf-8", "ignore")
    left_out = len(encoded) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {left_out:,} bytes left out ...]\n{tail}"
