"""Files of a session in HTTP requests and answers: their paths in URLs, and headers with their name, digest and type.

One rule holds for server and clients. A path is relative to the session's working directory, in UTF-8, with ``/``
between its parts. A path with a forbidden part is refused, never repaired: a repaired path names another file than the
one that was asked for. The headers are those of RFC 6266 (name) and RFC 9530 (digest).
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from urllib.parse import quote

from ..errors import InvalidRequest

# Linux takes 255 bytes in a name (NAME_MAX), and less than 4,096 in a path (PATH_MAX).
MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 4000
MAX_DEPTH = 64  # each part is opened by a descriptor of its own (`engine/files/confinement.py`)
# Uploads are written under such a name until they are complete.
TEMPORARY_PREFIX = ".jupyter-exec-upload-"


def path_parts(path: str) -> tuple[str, ...]:
    """Return the parts of a path.

    Raises
    ------
    InvalidRequest
        Saying what is wrong with it.
    """
    try:
        raw = path.encode()
    except UnicodeEncodeError:  # a name that is not UTF-8, which Python shows with lone surrogates
        raise InvalidRequest("the path must be valid UTF-8") from None
    if not path:
        raise InvalidRequest("the path is empty")
    if len(raw) > MAX_PATH_BYTES:
        raise InvalidRequest(f"a path may have at most {MAX_PATH_BYTES} bytes")
    if b"\0" in raw:
        raise InvalidRequest("the path must not hold NUL")
    if path.startswith("/"):
        raise InvalidRequest("the path must be relative to the session's working directory")
    parts = tuple(path.split("/"))
    if len(parts) > MAX_DEPTH:
        raise InvalidRequest(f"a path may have at most {MAX_DEPTH} parts")
    for part in parts:
        _check(part)
    return parts


def _check(part: str) -> None:
    if not part:
        raise InvalidRequest("the path must not hold an empty part ('//' or a '/' at its end)")
    if part in (".", ".."):
        raise InvalidRequest(
            f"a path with {part!r} as a part could leave the session's directory; write it without '.' or '..'"
        )
    if len(part.encode()) > MAX_COMPONENT_BYTES:
        raise InvalidRequest(f"a part of a path may have at most {MAX_COMPONENT_BYTES} bytes")
    if part.startswith(TEMPORARY_PREFIX):
        raise InvalidRequest(f"names that begin with {TEMPORARY_PREFIX!r} are the server's own")


def is_addressable(path: str) -> bool:
    """Return whether a path found on disk can be asked for."""
    try:
        path_parts(path)
    except InvalidRequest:
        return False
    return True


def quoted_path(path: str) -> str:
    """Return a checked path as it stands in a URL."""
    return "/".join(quote(part, safe="") for part in path_parts(path))


DIGEST_HEADER = "Repr-Digest"
WANT_DIGEST_HEADER = "Want-Repr-Digest"
WANT_SHA256 = "sha-256=10"
DEFAULT_MIME_TYPE = "application/octet-stream"

# 32 bytes are 43 characters of base64 and one '='.
_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):")
_WANTED = re.compile(r"(?:^|,)\s*sha-256\s*=\s*([0-9]|10)\b")
# '%' is replaced, too, because some programs decode it in ``filename`` (RFC 6266, appendix D).
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
    # `guess_type` names the content of a compressed file (``a.csv.gz`` is text/csv), but what is sent is gzip.
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
    return match is not None and match[1] != "0"  # RFC 9530: 0 is "not acceptable"
