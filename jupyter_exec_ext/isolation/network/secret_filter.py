"""Secrets in HTTP: values in the place of placeholders on the way out, and the reverse on the way back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from urllib.parse import quote

from .network_access import NetworkAccess, NetworkSecret, Target
from .upstream import Refused

Headers = list[tuple[bytes, bytes]]
# A part of an answer, a compressed one, or frames of a WebSocket with compression would hide the value.
_REMOVED = {b"accept-encoding", b"range", b"if-range", b"sec-websocket-extensions"}
_PRINTABLE = bytes(range(0x20, 0x7F))  # no form of a value has other bytes
_MAX_ESCAPE_BYTES = 3  # of one character, such as %2F


class SecretFilter:
    """Filter of one request and its response.

    Parameters
    ----------
    access : NetworkAccess
        Secrets of the session.
    target : Target
        The request.
    """

    def __init__(self, access: NetworkAccess, target: Target) -> None:
        is_secure = target.scheme == "https"
        self._given = [each for each in access.secrets if is_secure and each.is_for(target.host, target.port)]
        self._placeholders = [(each, each.placeholder.encode()) for each in access.secrets]
        self._replacements: dict[bytes, bytes] = {}
        # By its length alone: the length of an escaped value would tell how many special characters it has.
        self._held_bytes = max((len(each.value) * _MAX_ESCAPE_BYTES for each in self._given), default=0)
        self._sent_tail = self._received_tail = b""

    @property
    def has_secrets(self) -> bool:
        """True if the host gets a secret, so that its answers are filtered."""
        return bool(self._given)

    @property
    def names(self) -> list[str]:
        """Names of the secrets that the host gets."""
        return [secret.name for secret in self._given]

    def fill(self, url: str, headers: Headers) -> Headers:
        """Return the headers to send, with the values of secrets.

        Raises
        ------
        Refused
            If a placeholder is in any other place.
        """
        self._refuse_placeholder(url.encode(), "the URL")
        for secret in self._given:
            headers = self._fill_one(secret, headers)
        for name, value in headers:
            if name.lower() not in (secret.header.lower().encode() for secret in self._given):
                self._refuse_placeholder(value + b"\n" + _decoded_basic(value), "a header")
            self._refuse_placeholder(name, "a header")
        if not self._given:
            return headers
        return [each for each in headers if each[0].lower() not in _REMOVED] + [(b"Accept-Encoding", b"identity")]

    def check_sent(self, data: bytes) -> None:
        """Check a piece of the request's body, also for a placeholder that spans two pieces."""
        if self._placeholders:
            self._refuse_placeholder(self._sent_tail + data, "the body")
            self._sent_tail = (self._sent_tail + data)[-max(len(text) for _, text in self._placeholders) :]

    def clean_headers(self, headers: Sequence[tuple[bytes, bytes]]) -> Headers:
        """Return a response's headers without the values of secrets."""
        return [(self.clean_text(name), self.clean_text(value)) for name, value in headers]

    def clean_text(self, text: bytes) -> bytes:
        """Return a text that is whole, such as a header, without the values of secrets."""
        for needle, replacement in self._replacements.items():
            text = text.replace(needle, replacement)
        return text

    def clean_body(self, data: bytes, *, is_last: bool = False) -> bytes:
        """Return a piece of the response's body without the values of secrets.

        The end of a piece, in which a value may begin, is held back. How much follows from lengths and from bytes that
        no value has, such as newlines. If it followed from the value, a program could guess that piece by piece.
        """
        if not self._replacements:
            return data
        data = self.clean_text(self._received_tail + data)
        end = len(data) if is_last else max(_printable_start(data), len(data) - self._held_bytes)
        self._received_tail = data[end:]
        return data[:end]

    def refuse_value(self, data: bytes) -> None:
        """Raise `Refused` for a value in the frames of a WebSocket, which cannot be replaced there."""
        seen = self._received_tail + data
        if any(needle in seen for needle in self._replacements):
            raise Refused("the host sent the value of a secret back")
        self._received_tail = seen[-self._held_bytes :] if self._held_bytes else b""

    def _fill_one(self, secret: NetworkSecret, headers: Headers) -> Headers:
        name, placeholder, value = secret.header.lower().encode(), secret.placeholder.encode(), secret.value.encode()
        filled: Headers = []
        for each, text in headers:
            new = text
            if each.lower() == name:
                inner = _decoded_basic(text)
                if placeholder in inner:
                    new = b"Basic " + base64.b64encode(inner.replace(placeholder, value))
                    self._add_replacement(new[6:], text[6:])
                elif placeholder in text:
                    new = text.replace(placeholder, value)
                self._refuse_placeholder(new, "a header", other_than=secret)
            filled.append((each, new))
        if not any(each.lower() == name for each, _ in headers):
            filled.append((secret.header.encode(), secret.rendered(secret.value).encode()))
        for form in (str, quote, lambda text: json.dumps(text)[1:-1], lambda text: quote(text, safe="")):
            self._add_replacement(form(secret.value).encode(), placeholder)
        self._add_replacement(base64.b64encode(value), base64.b64encode(placeholder))
        return filled

    def _add_replacement(self, needle: bytes, replacement: bytes) -> None:
        self._replacements[needle] = replacement
        self._held_bytes = max(self._held_bytes, len(needle))

    def _refuse_placeholder(self, data: bytes, place: str, other_than: NetworkSecret | None = None) -> None:
        for secret, placeholder in self._placeholders:
            if placeholder in data and secret is not other_than:
                raise Refused(f"the placeholder of secret {secret.name!r} is in {place}, where it is not filled in")


def _decoded_basic(value: bytes) -> bytes:
    """Return user name and password of basic authentication; nothing for other values."""
    if value[:6].lower() != b"basic ":
        return b""
    try:
        return base64.b64decode(value[6:].strip())
    except (binascii.Error, ValueError):
        return b""


def _printable_start(data: bytes) -> int:
    """Return where the printable characters at the end of data begin."""
    return len(data.rstrip(_PRINTABLE))
