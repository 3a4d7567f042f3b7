"""Ids of sessions and executions: ``ses_4f…`` and, with the name of one of several servers, ``ses_w2_4f…``."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

_RANDOM_BYTES = 12
_MAX_NAME_CHARACTERS = 16
_HASH_CHARACTERS = 6
_ID = re.compile(rf"(ses|exe)_(?:([a-z0-9]{{1,{_MAX_NAME_CHARACTERS}}})_)?([0-9a-f]{{{2 * _RANDOM_BYTES}}})")


class RecordId(NamedTuple):
    """Parts of an id.

    Parameters
    ----------
    kind : str
        ``ses`` or ``exe``.
    server_name : str
        The name of the server that has made it; empty if it had none.
    digits : str
        The random part.
    """

    kind: str
    server_name: str
    digits: str


def server_slug(name: str) -> str:
    """Return a server's name as ids have it: at most 16 characters of a-z and 0-9.

    A name that has to be changed for that gets a hash, so that two such names stay different.
    """
    slug = re.sub(r"[^a-z0-9]", "", name.lower())
    if slug == name and len(name) <= _MAX_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_CHARACTERS]
    return slug[: _MAX_NAME_CHARACTERS - _HASH_CHARACTERS] + digest


def new_id(kind: str, server_name: str) -> str:
    """Return a new id of a session (``ses``) or an execution (``exe``); `server_name` is a slug, or empty."""
    return "_".join(filter(None, [kind, server_name, secrets.token_hex(_RANDOM_BYTES)]))


def parse_id(text: str) -> RecordId | None:
    """Return the parts of a whole id; None for any other text."""
    match = _ID.fullmatch(text)
    return None if match is None else RecordId(match[1], match[2] or "", match[3])
