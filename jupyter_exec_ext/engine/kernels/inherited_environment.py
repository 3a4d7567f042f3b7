"""What kernels get of the server's environment, which is looked through again only when it has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...protocol.kernel_environment import inherited_environment


class InheritedEnvironment:
    """Keeps what was chosen of this process's environment.

    A server may have it changed while it runs, by an extension that loads modules for the kernels to come.
    """

    def __init__(self) -> None:
        self._seen: tuple[object, Sequence[str]] | None = None
        self._chosen: dict[str, str] = {}

    def get(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the variables that `names`, which are patterns, let through; not to be changed."""
        # To look at each variable decodes it, twice. What they are decoded from is no public attribute.
        encoded = getattr(os.environ, "_data", None)
        if encoded is None or self._seen != (encoded, names):
            self._chosen = inherited_environment(os.environ, names)
            self._seen = None if encoded is None else (dict(encoded), list(names))
        return self._chosen
