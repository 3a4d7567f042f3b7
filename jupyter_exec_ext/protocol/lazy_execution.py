"""A finished execution whose outputs are put together when somebody looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

from ..models import Execution, JSONObject

_NAMES = tuple(field.name for field in fields(Execution))
_OF_FOLD = frozenset({"stdout", "stderr", "outputs"})


class Fold(Protocol):
    """What the events of an execution come to."""

    def text(self, name: str) -> str:
        """Return all text of the stream `name`."""

    def outputs(self) -> list[JSONObject]:
        """Return the outputs as nbformat 4 has them."""

    def parts(self) -> list[Any]:
        """Return what text and outputs are made of, without putting anything together."""


class FoldedExecution(Execution):
    """A record like any other, and a copy is a plain one.

    To join 100 MB of text takes 60 ms, in which nobody else gets a turn, and as much memory; who has followed the
    events, in the server as in the client, may have no use for it.
    """

    __slots__ = ("_fold",)
    _fold: Fold

    @classmethod
    def of(cls, record: Execution, fold: Fold, changes: Mapping[str, Any]) -> FoldedExecution:
        """Return `record` with changes and what `fold` holds, to which nothing is added any more."""
        self = cls.__new__(cls)
        object.__setattr__(self, "_fold", fold)
        for name in _NAMES:
            if name not in _OF_FOLD:
                object.__setattr__(self, name, changes[name] if name in changes else getattr(record, name))
        return self

    def __getattr__(self, name: str) -> Any:
        """Make a field when it is asked for; called for what is not there."""
        if name not in _OF_FOLD:
            raise AttributeError(name)
        value = self._fold.outputs() if name == "outputs" else self._fold.text(name)
        object.__setattr__(self, name, value)
        return value

    def _plain(self) -> Execution:
        return Execution(*(getattr(self, name) for name in _NAMES))

    def __eq__(self, other: object) -> bool:
        """Compare as what it is."""
        return self._plain() == (other._plain() if isinstance(other, FoldedExecution) else other)

    __hash__ = Execution.__hash__

    def __repr__(self) -> str:
        """Show as what it is."""
        return repr(self._plain())

    def __reduce__(self) -> tuple[type[Execution], tuple[Any, ...]]:
        """Be copied as what it is."""
        return Execution, tuple(getattr(self, name) for name in _NAMES)


def parts_of(execution: Execution) -> list[Any]:
    """Return what the outputs of an execution are made of, as long as they were not put together."""
    if isinstance(execution, FoldedExecution) and hasattr(execution, "_fold"):
        return execution._fold.parts()
    return [execution.stdout, execution.stderr, list(execution.outputs)]
