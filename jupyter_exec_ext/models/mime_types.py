"""MIME types of displayed values: the extension of a file, how its value is encoded, and its name in a text. Pure."""

from __future__ import annotations

import mimetypes
from functools import lru_cache

# What the standard library does not know, or knows under several names, of which it takes any.
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


@lru_cache(256)
def _guessed_extension(mime_type: str) -> str:
    suffix = _SUFFIXES.get(mime_type.rpartition("+")[2])
    if is_json(mime_type) or suffix:
        return suffix or "json"
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
