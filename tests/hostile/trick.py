"""One hostile thing that code in a kernel does, in a small or a large form."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Without what has to stand first: something comes before it.
_KIT = (Path(__file__).parent / "kit.py").read_text().replace("from __future__ import annotations\n", "")
#: Words of the kit by which a trick's text depends on the form.
_SIZED = ("LARGE", "PADDING", "padded(", "send_parts(", "frames(")


@dataclass(frozen=True)
class Trick:
    """A trick in one of its forms.

    Parameters
    ----------
    name : str
        Its name, with `/large` for the large form.
    code : str
        What runs in the kernel, after the kit.
    breaks_kernel : bool
        Whether the kernel is of no use afterwards.
    """

    name: str
    code: str
    is_large: bool = False
    breaks_kernel: bool = False

    def text(self, flood_seconds: float) -> str:
        """Return the text that a kernel is to run."""
        return f"LARGE, FLOOD_SECONDS = {self.is_large}, {flood_seconds}\n{_KIT}\n{self.code}"


def make_tricks(codes: Mapping[str, str], *, breaks_kernel: bool = False) -> list[Trick]:
    """Return tricks in all forms that they have: those whose text does not depend on the form have one."""
    found = []
    for name, raw in codes.items():
        code = textwrap.dedent(raw).strip() + "\n"
        found.append(Trick(name, code, breaks_kernel=breaks_kernel))
        if any(word in code for word in _SIZED):
            found.append(Trick(f"{name}/large", code, is_large=True, breaks_kernel=breaks_kernel))
    return found


def count_names(tricks: list[Trick]) -> int:
    """Return how many tricks there are, each counted once for all of its forms."""
    return len({trick.name.removesuffix("/large") for trick in tricks})
