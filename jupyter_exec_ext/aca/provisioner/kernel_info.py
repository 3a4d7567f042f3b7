"""What a kernel says of itself."""

from __future__ import annotations

from typing import Any

_BANNER = "Python in an Azure Container Apps session. Outputs come when a cell has ended; it cannot be interrupted."


def kernel_info(python_version: str) -> dict[str, Any]:
    """Return the content of a ``kernel_info_reply``; the version is empty until a session has told it."""
    language = {
        "name": "python",
        "version": python_version or "3",
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }
    return {
        "status": "ok",
        "protocol_version": "5.4",
        "implementation": "jupyter_exec_ext-aca",
        "implementation_version": "1.0",
        "language_info": language,
        "banner": _BANNER,
        "help_links": [],
        "supported_features": [],
    }
