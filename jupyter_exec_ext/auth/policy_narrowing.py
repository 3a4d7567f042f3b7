"""Narrower limits of tokens: whether a field of a policy allows more than the same field of another policy."""

from __future__ import annotations

from typing import Any

from ..models import ISOLATION_LEVELS
from .policy import matches

#: Values of the field ``network`` that are no rules.
NO_NETWORK, HOST_NETWORK = "none", "host"
PATTERN_FIELDS = ("kernelspecs", "env")
FLAG_FIELDS = ("attach", "unseen_uploads", "allow_comms", "approve_in_client")


def exceeds(name: str, inner: Any, outer: Any) -> bool:
    """Return whether `inner` allows more than `outer`, to report a probable mistake.

    Enforcement does not depend on this check, because both policies apply.
    """
    if name in PATTERN_FIELDS:
        # A narrower pattern, such as `ab*` below `a*`, is refused, too: it is not worth an algebra of patterns.
        return not all("*" in outer or pattern in outer or _names_one_of(pattern, outer) for pattern in inner)
    if name == "isolation":
        return ISOLATION_LEVELS.index(inner) < ISOLATION_LEVELS.index(outer)
    if name in FLAG_FIELDS:
        return bool(inner and not outer)
    if name in ("secrets", "mounts", "devices"):
        return not set(inner) <= set(outer)
    if name == "network":
        return not _is_narrower_network(inner, outer)
    if name == "packages":
        return inner is not None and outer is None
    # Rules cannot be compared. Both apply, so the inner one can only add questions.
    if name == "approval":
        return False
    return outer is not None and (inner is None or inner > outer)


def _is_narrower_network(inner: Any, outer: Any) -> bool:
    # As for patterns: rules have to be among the outer ones, word for word.
    if isinstance(inner, tuple):
        return isinstance(outer, tuple) and set(inner) <= set(outer)
    return inner in (None, NO_NETWORK) or inner == outer


def _names_one_of(pattern: str, patterns: tuple[str, ...]) -> bool:
    return "*" not in pattern and matches(pattern, patterns)
