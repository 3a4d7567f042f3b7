"""MIME bundles for models: one displayed value as text, picture, or file. Pure but for the ``save`` it is given.

This is the one rule by which `Execution.to_text` and `to_content`, executors, adapters and the command line show
values. Whatever a value is, something of it is in the text. `model_content` puts the values of an execution in order.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import mimetypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Takes a MIME type and the content of a file, saves it and returns where.
Save = Callable[[str, bytes], str]

# Kinds of pictures, the best first; others come after them.
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml", "image/bmp")
_SEEN_BY_MODELS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTS = ("text/markdown", "text/latex", "text/plain")
# Of no use away from a browser: they refer to what is elsewhere, or act on a page. Used where there is nothing else.
_FOR_BROWSERS = re.compile(
    r"application/(?:javascript|vnd\.(?:jupyter\.widget-|bokehjs_|holoviews_)[^/]*)|text/javascript"
)
# `<Figure size 640x480 with 1 Axes>`: says nothing where the thing itself is there.
_OBJECT_REPR = re.compile(r"<[^<>]*>\s*")
# Longer JSON and tables are files where they can be saved, and named where they cannot.
_MAX_INLINE_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class ImageContent:
    """A picture: for models a PNG, JPEG, GIF or WebP, in `Execution.images` of any kind.

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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file and return its path.

        Parameters
        ----------
        path : str or path
            The file; without a suffix, it gets that of the picture's kind.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        target = Path(path)
        if not target.suffix:
            target = target.with_suffix(f".{extension(self.mime_type)}")
        target.write_bytes(self.data)
        return target

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mime_type!r}, {len(self.data):,} bytes)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the picture, for a notebook."""
        return {"text/plain": repr(self), "text/html": image_html(self)}


def image_html(image: ImageContent) -> str:
    """Return the HTML that shows a picture; scripts in a drawing do not run in an image."""
    # Code chooses the MIME type, too, and so it may hold anything.
    return f'<img src="{html.escape(image.data_url)}" style="max-width:100%">'


def normalized_bundle(data: dict[str, Any]) -> dict[str, Any]:
    """Return a kernel's bundle as nbformat wants it: lines joined, and without types that have no value.

    Parameters
    ----------
    data : dict
        Returned as it is where nothing has to change. A bundle without any value becomes a text that says so.
    """
    if not any(value is None or (isinstance(value, list) and not is_json(mime)) for mime, value in data.items()):
        return data
    values = {mime: _lines_joined(mime, value) for mime, value in data.items() if value is not None}
    return values or {"text/plain": f"[{', '.join(map(_type_in_text, data))}, no data]"}


def _lines_joined(mime_type: str, value: Any) -> Any:
    is_lines = isinstance(value, list) and not is_json(mime_type) and all(isinstance(line, str) for line in value)
    return "".join(value) if is_lines else value


def pieces_of_bundle(data: Mapping[str, Any], save: Save | None) -> Iterator[str | ImageContent]:
    """Return one displayed value: its picture or else its text, and a line for each file that goes with it.

    Parameters
    ----------
    data : mapping
        The value by MIME type.
    save : callable or None
        Saves pictures, pages and data. Without it, they are pictures for the model, short text, or a line that names
        kind and size.
    """
    values = normalized_bundle(dict(data))
    picture = picture_of(values)
    documents = [mime for mime in values if _is_document(mime)]
    shown: list[str | ImageContent] = []
    shown.extend(_text_and_page(values, documents, save) if picture is None else _picture(*picture, values, save))
    yield from shown
    for mime in documents:
        yield _document(mime, values[mime], save, inline=not shown)
    if not shown and not documents:  # a picture that is none, or code for browsers
        for mime, value in values.items():
            yield _broken_picture(mime) if mime.startswith("image/") else _document(mime, value, save, inline=True)


def _is_document(mime_type: str) -> bool:
    is_shown = mime_type.startswith("image/") or mime_type in (*_TEXTS, "text/html", "application/json")
    return not is_shown and _FOR_BROWSERS.fullmatch(mime_type) is None


def picture_of(values: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Return the best picture that can be decoded."""
    for mime in (*_PICTURES, *(mime for mime in values if mime.startswith("image/"))):
        if isinstance(value := values.get(mime), str):
            content = value.encode("utf-8", "replace") if _is_markup(mime, value) else _decoded(value)
            if content:
                return mime, content
    return None


def _is_markup(mime_type: str, value: str) -> bool:
    return mime_type.endswith("+xml") and value.lstrip().startswith("<")


def _picture(mime: str, content: bytes, values: Mapping[str, Any], save: Save | None) -> Iterator[str | ImageContent]:
    if save is not None:
        yield _saved(mime, content, save)
    elif mime in _SEEN_BY_MODELS:
        yield ImageContent(mime, content)
    else:
        text = str(values.get("text/plain", ""))
        if text and not _OBJECT_REPR.fullmatch(text):
            yield text
        yield not_shown(mime, len(content))


def _text_and_page(values: Mapping[str, Any], documents: list[str], save: Save | None) -> Iterator[str]:
    text = next((str(values[mime]) for mime in _TEXTS if mime in values), None)
    has_words = bool(text) and _OBJECT_REPR.fullmatch(str(text)) is None
    if not has_words and "application/json" in values:
        yield _inline_or_file("application/json", values["application/json"], save)
        has_words = True
    elif text is not None and (has_words or ("text/html" not in values and not documents)):
        yield text
    if "text/html" not in values:
        return
    html = str(values["text/html"])
    if save is not None:
        yield _saved("text/html", html.encode("utf-8", "replace"), save)
    elif not has_words:
        yield html


def _document(mime: str, value: Any, save: Save | None, *, inline: bool) -> str:
    if save is not None:
        return _saved(mime, _content_of(mime, value), save)
    if inline and (is_json(mime) or mime.startswith("text/")):
        return _inline_or_file(mime, value, None)
    return not_shown(mime, len(_content_of(mime, value)))


def _broken_picture(mime: str) -> str:
    return f"[{_type_in_text(mime)}, not shown: it cannot be decoded]"


def _inline_or_file(mime: str, value: Any, save: Save | None) -> str:
    text = _json_text(value, ascii_only=False) if is_json(mime) else str(value)
    if len(text) <= _MAX_INLINE_CHARACTERS:
        return text
    content = _content_of(mime, value)
    return not_shown(mime, len(content)) if save is None else _saved(mime, content, save)


def _content_of(mime: str, value: Any) -> bytes:
    """Return what the file of a value has in it."""
    if is_json(mime) or not isinstance(value, str):
        return _json_text(value, ascii_only=True).encode()
    decoded = _decoded(value) if is_base64(mime) else None
    return value.encode("utf-8", "replace") if decoded is None else decoded


def _json_text(value: Any, *, ascii_only: bool) -> str:
    """Return a value as JSON; some kernels send it as text already."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return value.encode("utf-8", "replace").decode()
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))


def _decoded(value: str) -> bytes | None:
    try:
        # Base64 of kernels has line ends, which `validate` refuses. Without it, text that is no base64 could decode.
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _saved(mime: str, content: bytes, save: Save) -> str:
    """Save a file and return the line that says where, or why it could not be: the rest of the result stays."""
    try:
        return f"{display_name(mime)} data saved to {save(mime, content)}"
    except OSError as error:
        return f"[{_type_in_text(mime)}, {len(content):,} bytes, could not be saved: {error.strerror or error}]"


def not_shown(mime: str, size_bytes: int) -> str:
    """Return the line that stands for a value which is neither text nor saved."""
    return f"[{_type_in_text(mime)}, {size_bytes:,} bytes, not shown]"


def _type_in_text(mime: str) -> str:
    return mime if len(mime) < 80 and mime.isprintable() else f"{extension(mime)} data"


# --- MIME types: the extension of a file, how its value is encoded, and its name in a text ---

# Types that the standard library does not know, or knows under several names, of which it takes any.
_EXTENSIONS = {
    "application/javascript": "js",
    "application/pdf": "pdf",
    "application/xml": "xml",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/webm": "weba",
    "audio/x-wav": "wav",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tif",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html",
    "text/latex": "tex",
    "text/markdown": "md",
    "text/plain": "txt",
    "text/tab-separated-values": "tsv",
    "video/mp4": "mp4",
    "video/mpeg": "mpg",
    "video/ogg": "ogv",
    "video/webm": "webm",
}
_SUFFIXES = {"json": "json", "xml": "xml", "zip": "zip", "gzip": "gz"}
_NAMES = {
    "application/geo+json": "GeoJSON",
    "application/json": "JSON",
    "application/pdf": "PDF",
    "text/csv": "CSV",
    "text/html": "HTML",
}
_FAMILY_NAMES = {
    "application/vnd.plotly.": "Plotly",
    "application/vnd.vega.": "Vega",
    "application/vnd.vegalite.": "Vega-Lite",
    "audio/": "Audio",
    "image/": "Image",
    "video/": "Video",
}
_BINARY_FAMILIES = ("audio/", "font/", "image/", "video/", "application/vnd.openxmlformats-")
_BINARY = frozenset(
    f"application/{name}"
    for name in (
        *("gzip", "msword", "octet-stream", "pdf", "vnd.apache.arrow.file", "vnd.apache.arrow.stream"),
        *("vnd.apache.parquet", "vnd.ms-excel", "vnd.ms-powerpoint", "x-tar", "zip"),
    )
)
_MAX_NAME_CHARACTERS = 80


def extension(mime_type: str) -> str:
    """Return what the name of a file of this type ends in; a guess from tables, never a part of the type itself."""
    return _EXTENSIONS.get(mime_type) or _guessed_extension(mime_type)


# Bounded, since code can make up types without end.
@lru_cache(256)
def _guessed_extension(mime_type: str) -> str:
    suffix = _SUFFIXES.get(mime_type.rpartition("+")[2])
    if is_json(mime_type) or suffix:
        return suffix or "json"
    # Not `mimetypes.guess_extension`, which also reads tables of this machine, such as /etc/mime.types.
    known = mimetypes.MimeTypes().guess_extension(mime_type)
    return known.removeprefix(".") if known else "txt" if mime_type.startswith("text/") else "bin"


def is_json(mime_type: str) -> bool:
    """Return whether a value of this type is JSON, and not text."""
    return mime_type.endswith(("/json", "+json"))


def is_base64(mime_type: str) -> bool:
    """Return whether a value of this type is base64, as Jupyter has it for files that are no text."""
    return mime_type in _BINARY or (mime_type.startswith(_BINARY_FAMILIES) and not mime_type.endswith("+xml"))


def display_name(mime_type: str) -> str:
    """Return what a text calls a value of this type, such as ``"Image"``; code may have made the type up."""
    if mime_type in _NAMES:
        return _NAMES[mime_type]
    for family, name in _FAMILY_NAMES.items():
        if mime_type.startswith(family):
            return name
    return "".join(char if char.isprintable() else "?" for char in mime_type[:_MAX_NAME_CHARACTERS]) or "untyped"
