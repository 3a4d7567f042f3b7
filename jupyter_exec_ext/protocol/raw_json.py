"""JSON of which some was written by somebody else, and is sent on as it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

_NOTHING: Mapping[str, memoryview] = MappingProxyType({})


class WrittenDict(dict[str, Any]):
    """A JSON object, and how some of its strings are written; not to be changed, and a copy is a plain one.

    A picture is several megabytes of base64, in which JSON escapes nothing. To look for that and to encode it took
    longer than all else, for the log and again for the answer, while its bytes are there in the kernel's message.

    Parameters
    ----------
    values : mapping or iterable of pairs
    texts : mapping of str to memoryview
        By key, what stands between the quotes: ASCII.
    """

    __slots__ = ("texts",)

    def __init__(
        self,
        values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        texts: Mapping[str, memoryview] = _NOTHING,
    ) -> None:
        super().__init__(values)
        self.texts = texts

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Be copied as what it holds."""
        return dict, (dict(self),)
