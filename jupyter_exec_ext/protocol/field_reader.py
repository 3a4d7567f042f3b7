"""Body of a request to our own HTTP API: its fields are taken out one by one, each checked."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest
from .strict_json import dumps, utf8_size

MAX_METADATA_BYTES = 64 * 1024
MAX_LIMITS_BYTES = 8 * 1024  # a token's record has those of all above it, and is read with each request
_MAX_DEPTH = 32
_MAX_SECONDS = 1e9


class FieldReader:
    """Reader of a request body: removes fields one by one, each checked, and rejects those that are left."""

    def __init__(self, body: Any) -> None:
        if not isinstance(body, dict):
            raise InvalidRequest("the request body must be a JSON object")
        self._left = dict(body)
        self._known: list[str] = []

    def pop_field(self, name: str, expected: str, check: Callable[[Any], bool]) -> Any:
        """Remove a field and return its value, or None if it is absent or null."""
        self._known.append(name)
        value = self._left.pop(name, None)
        if value is not None and not check(value):
            raise InvalidRequest(f"{name!r} must be {expected}")
        return value

    def text(self, name: str, max_length: int | None = None) -> str | None:
        """Return a text, or None."""
        expected = "a string" if max_length is None else f"a string of at most {max_length} characters"
        value = self.pop_field(
            name, expected, lambda v: isinstance(v, str) and (max_length is None or len(v) <= max_length)
        )
        return None if value is None else str(value)

    def seconds(self, name: str, *, zero_allowed: bool) -> float | None:
        """Return a number of seconds, or None."""

        def check(value: Any) -> bool:
            # In Python, JSON's ``true`` is an integer.
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value <= _MAX_SECONDS:
                return False
            return value >= 0 if zero_allowed else value > 0

        least = "0 or more" if zero_allowed else "greater than 0"
        expected = f"a number of seconds, {least} and at most {_MAX_SECONDS:.0f}"
        value = self.pop_field(name, expected, check)
        return None if value is None else float(value)

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object, empty without one."""
        value = self.pop_field(name, "a JSON object", lambda v: isinstance(v, dict))
        return {} if value is None else dict(value)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata, empty without any."""
        return self._small_object("metadata", MAX_METADATA_BYTES)

    def limits(self) -> dict[str, Any]:
        """Return the limits of a token, empty without any."""
        return self._small_object("limits", MAX_LIMITS_BYTES)

    def _small_object(self, name: str, max_bytes: int) -> dict[str, Any]:
        value = self.object(name)
        # Before the size is measured: values that are nested very deeply cannot be written as JSON.
        if _depth_exceeds(value, _MAX_DEPTH):
            raise InvalidRequest(f"{name!r} may be nested at most {_MAX_DEPTH} levels deep")
        if utf8_size(dumps(value)) > max_bytes:
            raise InvalidRequest(f"{name!r} may have at most {max_bytes} bytes of JSON")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false; false without it."""
        return bool(self.pop_field(name, "true or false", lambda v: isinstance(v, bool)))

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return a list of texts, or None."""

        def check(value: Any) -> bool:
            return isinstance(value, list) and len(value) <= 100 and all(isinstance(item, str) for item in value)

        value = self.pop_field(name, "a list of at most 100 strings", check)
        return None if value is None else tuple(value)

    def reject_unknown_fields(self) -> None:
        """Raise `InvalidRequest` if a field is left; the message names the known ones."""
        for name in self._left:
            name = str(name)[:64]  # `get_close_matches` takes very long for a long name
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known fields: {', '.join(self._known)}"
            raise InvalidRequest(f"unknown field {name!r}{hint}")


def _depth_exceeds(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_depth_exceeds(item, levels - 1) for item in items)
