"""Canonical paths of URLs, and globs that match them. Pure.

A rule is compared with the canonical path, and the canonical path is what is sent on. Paths that servers read in
different ways are refused.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ALLOWED = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/%]*")
_ALLOWED_QUERY = re.compile(r"[!-~]*")
_ESCAPE = re.compile("%(..?)?")
_MAX_DECODINGS = 5


class PathError(ValueError):
    """A path that servers could read in different ways."""


def canonical_path(path: str) -> str:
    """Return the canonical form of a path: plain characters decoded, dot segments and double slashes removed.

    Parameters
    ----------
    path : str
        Path of a request, without its query; empty for ``/``.

    Returns
    -------
    str
        The path to match and to send.

    Raises
    ------
    PathError
        If it does not begin with a slash, has characters that no URL has, or hides dot segments or backslashes.
    """
    path = path or "/"
    if not path.startswith("/") or not _ALLOWED.fullmatch(path):
        raise PathError("the path has characters that no URL has")
    path = _ESCAPE.sub(_canonical_escape, path)
    kept: list[str] = []
    segments = [segment for segment in path.split("/") if segment]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    is_directory = path.endswith("/") or segments[-1] in (".", "..")
    canonical = "/" + "/".join(kept) + ("/" if kept and is_directory else "")
    _refuse_hidden_parts(canonical)
    return canonical


def split_target(target: str) -> tuple[str, str]:
    """Split a request's path and query, and return the canonical path and the query with its question mark.

    Raises
    ------
    PathError
        If the path is not acceptable, or the query has characters that no URL has.
    """
    path, mark, query = target.partition("?")
    if not _ALLOWED_QUERY.fullmatch(query) or "#" in target:
        raise PathError("the query has characters that no URL has")
    return canonical_path(path), mark + query


def glob_matches(pattern: str, path: str) -> bool:
    """Return whether a pattern matches a whole path; ``*`` stands for any characters, slashes too. Linear in time."""
    first, *others = pattern.split("*")
    if not others:
        return path == pattern
    *middle, last = others
    if not path.startswith(first):
        return False
    position = len(first)
    for part in middle:
        found = path.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return len(path) - len(last) >= position and path.endswith(last)


def _canonical_escape(match: re.Match[str]) -> str:
    try:
        value = bytes.fromhex(match[1] or "")
    except ValueError:
        value = b""
    if len(value) != 1:
        raise PathError("the path has a percent sign without two digits")
    return value.decode("ascii") if value[0] in _UNRESERVED else f"%{value[0]:02X}"


def _refuse_hidden_parts(path: str) -> None:
    """Raise for what shows only to servers that decode more than once, or treat ``;`` and backslashes specially."""
    decoded = path.encode("ascii")
    for _ in range(_MAX_DECODINGS):
        if any(part.split(b";")[0].strip() in (b".", b"..") for part in re.split(rb"[/\\]", decoded)):
            raise PathError("the path hides dot segments")
        if b"\\" in decoded or any(byte < 0x20 or byte == 0x7F for byte in decoded):
            raise PathError("the path hides a backslash or a control character")
        further = unquote_to_bytes(decoded)
        if further == decoded:
            return
        decoded = further
    raise PathError("the path is encoded too many times")
