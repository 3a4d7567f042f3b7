"""Format of scoped tokens: generation, parsing and constant-time comparison.

    jex_<id: 8><_><secret: 43><check: 6>

All parts are base62, so that a double click selects the whole token. The secret holds 256 random bits. The check is a
CRC32 of the text before it: this package and scanners for leaked secrets recognise a mistyped token without a database
(GitHub's idea). Only a SHA-256 of the secret is kept, because a random secret needs no slow hash.
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
# In base62, 43 digits hold 256 bits, and 6 digits hold any CRC32.
_ID_LENGTH, _SECRET_LENGTH, _CHECK_LENGTH = 8, 43, 6
_TOKEN = re.compile(rf"(jex_([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}}))([0-9A-Za-z]{{6}})")
# Compared with the secret of an unknown token, so that it takes the same time. No secret has this hash.
NO_HASH = b"\0" * 32


@dataclass(frozen=True, slots=True)
class TokenText:
    """A well-formed token, as its bearer sends it. Its `repr` has no secret.

    Parameters
    ----------
    id : str
        The public name of the token in lists, logs and records.
    secret : str
        The secret, which is never stored or shown.
    """

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The whole token, shown once to its creator."""
        body = f"{PREFIX}{self.id}_{self.secret}"
        return body + _check(body)

    @property
    def secret_hash(self) -> bytes:
        """The stored hash of the secret."""
        return hashlib.sha256(self.secret.encode()).digest()


def new_token(token_id: str | None = None) -> TokenText:
    """Return a new token, or a new secret for an existing one."""
    return TokenText(token_id or _random(_ID_LENGTH), _random(_SECRET_LENGTH))


def parse_token(text: str) -> TokenText | None:
    """Parse a token; return None if `text` is not a well-formed one."""
    match = _TOKEN.fullmatch(text)
    if match is None or not hmac.compare_digest(_check(match[1]), match[4]):
        return None
    return TokenText(match[2], match[3])


def matches_any(presented: bytes, kept: Iterable[bytes]) -> bool:
    """Return whether a secret's hash is one of those kept, in constant time."""
    # `any` would stop at the first match, and its time would show which one that was.
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
