"""Secrets in HTTP: values in the place of placeholders on the way out, and the reverse on the way back."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache

from .access_decision import NetworkAccess, NetworkSecret, Target
from .upstream import Refused

Headers = list[tuple[bytes, bytes]]
# A part of an answer, a compressed one, or frames of a WebSocket with compression would hide the value.
_REMOVED = {b"accept-encoding", b"range", b"if-range", b"sec-websocket-extensions"}
_PRINTABLE = bytes(range(0x20, 0x7F))  # no form of a value has other bytes
_MAX_ESCAPE_BYTES = 8  # of one character, such as &#x002f;
_HTML_NAMES = {'"': "quot", "'": "apos", "&": "amp", "<": "lt", ">": "gt"}


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
        #: Secrets that `fill` has put in.
        self.filled: list[NetworkSecret] = []
        is_secure = target.scheme == "https"
        self._given = [each for each in access.secrets if is_secure and each.is_for(target.host, target.port)]
        self._placeholders = [(each, each.placeholder.encode()) for each in access.secrets]
        self._credentials: list[tuple[bytes, bytes]] = []  # of basic authentication, as sent and as the program has it
        self._patterns = [  # with placeholders as `sub` takes them
            (re.compile(pattern), each.placeholder.encode().replace(b"\\", rb"\\"))
            for each in self._given
            for pattern in _patterns(each.value)
        ]
        # By lengths alone: the length of an escaped value would tell how many special characters it has.
        self._held_bytes = max((len(each.value) * _MAX_ESCAPE_BYTES * 4 // 3 for each in self._given), default=0)
        self._sent_tail = self._received_tail = b""

    @property
    def has_secrets(self) -> bool:
        """True if the host gets a secret, so that its answers are filtered."""
        return bool(self._given)

    def fill(self, url: str, headers: Headers) -> Headers:
        """Return the headers to send, with the values of secrets.

        Raises
        ------
        Refused
            If a placeholder is in any other place.
        """
        self._refuse_placeholder(url.encode(), "the URL")
        owners = {secret.header.lower().encode(): secret for secret in self._given}
        filled: Headers = []
        for name, value in headers:
            self._refuse_placeholder(name, "a header")
            filled.append((name, self._filled(owners.pop(name.lower(), None), value)))
        for each in owners.values():
            filled.append((each.header.encode(), each.rendered(each.value).encode()))
            self.filled.append(each)
        if not self._given:
            return filled
        return [each for each in filled if each[0].lower() not in _REMOVED] + [(b"Accept-Encoding", b"identity")]

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
        for needle, original in self._credentials:
            text = text.replace(needle, original)
        for pattern, placeholder in self._patterns:
            text = pattern.sub(placeholder, text)
        return text

    def clean_body(self, data: bytes, *, is_last: bool = False) -> bytes:
        """Return a piece of the response's body without the values of secrets.

        The end of a piece, in which a value may begin, is held back. How much follows from lengths and from bytes that
        no value has, such as newlines. If it followed from the value, a program could guess that piece by piece.
        """
        if not self._given:
            return data
        data = self.clean_text(self._received_tail + data)
        end = len(data) if is_last else max(_printable_start(data), len(data) - self._held_bytes)
        self._received_tail = data[end:]
        return data[:end]

    def refuse_value(self, data: bytes) -> None:
        """Raise `Refused` for a value in the frames of a WebSocket, which cannot be replaced there."""
        seen = self._received_tail + data
        if any(pattern.search(seen) for pattern, _ in self._patterns):
            raise Refused("the host sent the value of a secret back")
        self._received_tail = seen[-self._held_bytes :] if self._held_bytes else b""

    def _filled(self, secret: NetworkSecret | None, text: bytes) -> bytes:
        """Return the value of a header, with that of a secret if it is the secret's own.

        Any other text around the placeholder is refused: a host that repeats only a part of a header would then repeat
        the part of the value that the program chooses.
        """
        credentials = _decoded_basic(text)
        user, _, password = credentials.partition(b":")
        place = "a header"
        if secret is not None:
            if text == secret.rendered(secret.placeholder).encode():
                self.filled.append(secret)
                return secret.rendered(secret.value).encode()
            if password == secret.placeholder.encode() and secret.header.lower() == "authorization":
                self._refuse_placeholder(user, "a user name")
                sent = base64.b64encode(user + b":" + secret.value.encode())
                self._credentials.append((sent, text[6:].strip()))
                self._held_bytes = max(self._held_bytes, len(sent))
                self.filled.append(secret)
                return b"Basic " + sent
            place = f"the header {secret.header}, in a form other than '{secret.template}'"
        self._refuse_placeholder(text + b"\n" + credentials, place)
        return text

    def _refuse_placeholder(self, data: bytes, place: str) -> None:
        for secret, placeholder in self._placeholders:
            if placeholder in data:
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


@lru_cache(maxsize=128)
def _patterns(value: str) -> tuple[bytes, ...]:
    """Return patterns of a value as it is and in base64, with any of its special characters escaped."""
    # Either all backslashes are doubled or none: a pattern with the choice at each would take exponential time.
    texts = dict.fromkeys((value, value.replace("\\", r"\\")))
    patterns = ["".join(map(_character_pattern, text)) for text in texts]
    for before in range(3):  # base64 differs by the bytes before the value
        encoded = base64.b64encode(bytes(before) + value.encode()).decode()
        # Without characters that have bits of other bytes, too.
        whole = encoded[-(-8 * before // 6) : 8 * (before + len(value)) // 6]
        patterns.append("".join(_character_pattern(char, {"+": "-", "/": "_"}.get(char, "")) for char in whole))
    return tuple(pattern.encode() for pattern in patterns)


def _character_pattern(character: str, url_safe: str = "") -> str:
    """Return a pattern of a character as it is, and as in URLs, JSON, programs and HTML; letters are not escaped."""
    if character.isalnum():
        return character
    code = ord(character)
    digits = "".join(f"[{digit}{digit.upper()}]" for digit in f"{code:02x}")
    escaped = re.escape(character)
    forms = [escaped if character == "\\" else rf"\\?{escaped}", f"%{digits}", rf"\\u00{digits}", rf"\\x{digits}"]
    forms += [f"&#0{{0,2}}{code};", f"&#[xX]0{{0,2}}{digits};"]
    if name := _HTML_NAMES.get(character, ""):
        forms.append(f"&{name};")
    if character == " ":
        forms.append(r"\+")
    if url_safe:
        forms.append(_character_pattern(url_safe))
    return f"(?:{'|'.join(forms)})"
