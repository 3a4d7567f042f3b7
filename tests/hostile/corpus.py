"""Corpus of all tricks, and how parts of it are chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .connections import CONNECTIONS
from .files import FILES
from .messages import MESSAGES
from .trick import Trick

#: How isolated the kernels are that the corpus runs in.
KINDS = ("none", "landlock", "sandbox")
TRICKS = [*MESSAGES, *CONNECTIONS, *FILES]


@dataclass(frozen=True)
class Case:
    """A trick in a kind of kernel."""

    trick: Trick
    kind: str

    @property
    def name(self) -> str:
        """Its name, which chooses it."""
        return f"{self.trick.name}@{self.kind}"


#: A kernel without isolation has the server's own standard streams, so its process can write to the log as it likes.
#: Its home is the person's, where it can make every later kernel without isolation hang at its start.
_FOR_ISOLATED_KERNELS = ("stderr_of_the_process", "stdout_of_the_process", "file_interpreter_startup")
CASES = [
    Case(trick, kind)
    for trick in TRICKS
    for kind in KINDS
    if kind != "none" or trick.name.removesuffix("/large") not in _FOR_ISOLATED_KERNELS
]


def choose(patterns: Iterable[str] = (), *, every: int = 1, offset: int = 0) -> list[Case]:
    """Return the cases whose names match one of the patterns, and of these an even part.

    Parameters
    ----------
    patterns : iterable of str
        Names of cases with `*`, or of tricks; all where none is given.
    every : int
        One of how many is chosen.
    offset : int
        Which one of them.
    """
    wanted = list(patterns) or ["*"]
    found = [
        case for case in CASES if any(fnmatchcase(case.name, p) or fnmatchcase(case.trick.name, p) for p in wanted)
    ]
    return found[offset::every]
