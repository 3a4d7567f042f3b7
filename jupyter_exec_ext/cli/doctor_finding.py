"""What ``jupyter exec doctor`` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    remedy : str
        What to do about it, or what follows from it; empty if it is in order.
    fails : bool
        False for what works as it is meant to, and is yet good to know.
    """

    what: str
    remedy: str = ""
    fails: bool = True

    @property
    def mark(self) -> str:
        """``ok``, ``note`` or ``FAIL``."""
        if not self.remedy:
            return "ok"
        return "FAIL" if self.fails else "note"
