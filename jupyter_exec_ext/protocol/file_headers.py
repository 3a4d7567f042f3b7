"""What HTTP headers say about a file: its name (RFC 6266), its digest (RFC 9530), its kind."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from urllib.parse import quote

DIGEST_HEADER = "Repr-Digest"
WANT_DIGEST_HEADER = "Want-Repr-Digest"
WANT_SHA256 = "sha-256=10"
DEFAULT_MIME_TYPE = "application/octet-stream"

_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):")
_WANTED = re.compile(r"(?:^|,)\s*sha-256\s*=\s*([0-9]|10)\b")
_NOT_IN_QUOTES = re.compile(r"[^ !#$&'()+,\-.0-9;<=>@A-Z\[\]^_`a-z{|}~]")
# The types that Python knows by itself: the answer does not depend on what else is installed on the server.
_TYPES = mimetypes.MimeTypes()
_TYPES.add_type("application/x-ipynb+json", ".ipynb")
_TYPES.add_type("application/vnd.apache.parquet", ".parquet")
_TYPES.add_type("application/yaml", ".yaml")
_TYPES.add_type("application/yaml", ".yml")
_BY_ENCODING = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


def mime_type(path: str) -> str:
    """Return the MIME type that the name of a file stands for."""
    name = path.rpartition("/")[2]
    # A harmless first letter keeps a name from being taken for a URL with a scheme, or for a dotfile.
    kind, encoding = _TYPES.guess_type("x" + name, strict=False)
    if encoding is not None:
        return _BY_ENCODING.get(encoding, DEFAULT_MIME_TYPE)
    return kind or DEFAULT_MIME_TYPE


def content_disposition(path: str) -> str:
    """Return the header that makes any program save a file under its own name instead of showing it.

    ``filename`` is for programs that do not know ``filename*``; it is ASCII and needs no escapes.
    """
    name = path.rpartition("/")[2]
    return f"attachment; filename=\"{_NOT_IN_QUOTES.sub('_', name)}\"; filename*=UTF-8''{quote(name, safe='')}"


def digest_header(sha256: str) -> str:
    """Return the value of ``Repr-Digest`` for a hexadecimal SHA-256."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def sha256_in(header: str) -> str | None:
    """Return the hexadecimal SHA-256 that a ``Repr-Digest`` holds, if it does."""
    match = _DIGEST.search(header)
    if match is None:
        return None
    try:
        return base64.b64decode(match[1], validate=True).hex()
    except binascii.Error:
        return None


def wants_sha256(header: str) -> bool:
    """Return whether a ``Want-Repr-Digest`` asks for a SHA-256."""
    match = _WANTED.search(header)
    return match is not None and match[1] != "0"
