"""Set-up of IPython kernels for unattended code: the request that each kernel of our own is sent when it has started.

`in_kernel/unattended.py` says what it changes. `kernel_backpressure.py` has the request
that makes a kernel wait for its readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .kernel_messages import execute_request

_SOURCE = Path(__file__).parent.parent / "in_kernel" / "unattended.py"
_CALL = "\nfrom IPython import get_ipython\nset_up(get_ipython())\n"


def unattended_request(more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the content of a request that prepares an IPython kernel; to one that is prepared it does nothing.

    Parameters
    ----------
    more : mapping of str to str, optional
        Further expressions, each evaluated by itself, such as `protocol.kernel_backpressure.default_expressions`.
    """
    request = execute_request("", allow_input=False)
    expressions = {"unattended": _expression(), **(more or {})}
    return {**request, "silent": True, "store_history": False, "user_expressions": expressions}


@cache
def _expression() -> str:
    # As an expression, in a namespace of its own: nothing of it is in the user's.
    return f"exec({_SOURCE.read_text(encoding='utf-8') + _CALL!r}, {{'__name__': 'jupyter_exec_ext_unattended'}})"
