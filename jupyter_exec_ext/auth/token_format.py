"""Scoped tokens: their format, and what makes one acceptable.

    jex_<id: 8><_><secret: 43><check: 6>

All parts are base62, so that a double click selects the whole. The secret holds 256 random bits; the check is a CRC32
of what stands before it, so that a scanner for leaked secrets, and we, can tell a token from a slip of the keyboard
without asking anybody (the idea is GitHub's). Only a SHA-256 of the secret is kept: what is this random needs no slow
hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

PREFIX = "jex_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_LENGTH, _SECRET_LENGTH, _CHECK_LENGTH = 8, 43, 6
_TOKEN = re.compile(rf"(jex_([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}}))([0-9A-Za-z]{{6}})")
# What a secret is compared with where there is none to compare it with; no secret has this hash.
NO_HASH = b"\0" * 32


@dataclass(frozen=True, slots=True)
class TokenText:
    """A well-formed token, as its bearer sends it; shown without its secret.

    Parameters
    ----------
    id : str
        Public: names the token in lists, logs and records.
    secret : str
        Never stored or shown.
    """

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The whole token; shown once, to whoever creates it."""
        body = f"{PREFIX}{self.id}_{self.secret}"
        return body + _check(body)

    @property
    def secret_hash(self) -> bytes:
        """What is kept of the secret."""
        return hashlib.sha256(self.secret.encode()).digest()


def new_token(token_id: str | None = None) -> TokenText:
    """Return a fresh token, or a fresh secret for an existing one."""
    return TokenText(token_id or _random(_ID_LENGTH), _random(_SECRET_LENGTH))


def parse_token(text: str) -> TokenText | None:
    """Return the parts of a token, or None if `text` is none."""
    match = _TOKEN.fullmatch(text)
    if match is None or not hmac.compare_digest(_check(match[1]), match[4]):
        return None
    return TokenText(match[2], match[3])


def matches_any(presented: bytes, kept: Iterable[bytes]) -> bool:
    """Compare a secret's hash with all that are kept, in the same time whether one is right or none."""
    found = False
    for secret_hash in kept:
        found |= hmac.compare_digest(presented, secret_hash)
    return found


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _check(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CHECK_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
