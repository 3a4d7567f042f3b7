"""Names of files in a session, as they stand in URLs, lists and records: one rule for server and clients.

A path is relative to the session's working directory, in UTF-8, with ``/`` between its parts. What it may not hold is
refused, never repaired: a repaired path names another file than the one that was asked for.
"""

from __future__ import annotations

from urllib.parse import quote

from ..errors import InvalidRequest

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 4000
MAX_DEPTH = 64
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
    except UnicodeEncodeError:
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
        raise InvalidRequest("the path must not hold '.' or '..' as a part")
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
