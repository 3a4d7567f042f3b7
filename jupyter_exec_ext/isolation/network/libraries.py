"""Libraries that the egress proxy needs, which are installed with the extra ``network``."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = ("cryptography", "h11")
INSTALL_COMMAND = "pip install 'jupyter-exec-ext[network]'"


def missing_libraries() -> list[str]:
    """Return the names of those that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]
