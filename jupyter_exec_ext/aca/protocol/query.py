"""The query of an ACA request, read so that no two identifiers can ever be taken for one another.

Clients differ in how they write it: in any order, quoted or not. What could mean two things is refused: a parameter
that comes twice, an escape that is none, bytes that are no UTF-8. A plus sign stands for a space, as in forms, which no
identifier holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from ...errors import InvalidRequest
from .addresses import Family, check_identifier, family_of

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAX_SKIP_DIGITS = 9


def query_from_text(query: str) -> dict[str, str]:
    """Return the parameters of a query as it stands in the address (with Latin-1 for bytes that are not ASCII).

    Raises
    ------
    InvalidRequest
    """
    found: dict[str, str] = {}
    for field in query.split("&"):
        if not field:
            continue
        name, _, value = field.partition("=")
        name = _decoded(name)
        if name in found:
            raise InvalidRequest(f"the query has {name[:64]!r} twice")
        found[name] = _decoded(value)
    return found


def identifier_of(query: Mapping[str, str]) -> str:
    """Return the session's identifier.

    Raises
    ------
    InvalidRequest
        If there is none, or one that the specification forbids.
    """
    identifier = query.get("identifier")
    if identifier is None:
        raise InvalidRequest("the query has no 'identifier', which names the session")
    return check_identifier(identifier)


def api_version_of(query: Mapping[str, str]) -> str:
    """Return the api-version.

    The specification demands one, and there is more to it: a client that puts an identifier into the address as it is
    sends nothing of what follows a ``#`` in it. Where the api-version came after it, its absence shows that.

    Raises
    ------
    InvalidRequest
        If there is none, or no such version.
    """
    api_version = query.get("api-version")
    if api_version is None:
        raise InvalidRequest("the query has no 'api-version'; was a '#' in the identifier not written as '%23'?")
    family_of(api_version)
    return api_version


def family_asked(query: Mapping[str, str]) -> Family:
    """Return the family of the api-version that is asked for; raises `InvalidRequest`."""
    return family_of(api_version_of(query))


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """Return a yes or no of the query; no if it is not there; raises `InvalidRequest`."""
    word = query.get(name, "false").lower()
    if word not in ("true", "false"):
        raise InvalidRequest(f"{name!r} must be true or false")
    return word == "true"


def skip_of(query: Mapping[str, str]) -> int:
    """Return how many items of a list are to be left out; raises `InvalidRequest`."""
    text = query.get("skip", "0")
    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_SKIP_DIGITS:
        raise InvalidRequest("'skip' must be a whole number")
    return int(text)


def _decoded(text: str) -> str:
    if _BROKEN_ESCAPE.search(text):
        raise InvalidRequest("the query has a '%' that is not followed by two hexadecimal digits; write it as '%25'")
    try:
        return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode()
    except UnicodeError:
        raise InvalidRequest("the query is not valid UTF-8") from None
