"""Kernel requests that set environment variables for one run, and code that changes the directory.

They are silent requests of their own before and after the code: code that stood before the caller's would be in its
history and change the line numbers of its errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kernel_messages import execute_request

# The values from before are kept on the module, since nothing of ours may be among the session's variables.
_SET = (
    "(lambda os, new: (setattr(os, '_exec_env', {{n: os.environ.get(n) for n in new}}), os.environ.update(new)))"
    "(__import__('os'), {env!r})"
)
_RESTORE = (
    "(lambda os: [os.environ.pop(n, None) if v is None else os.environ.update({n: v})"
    " for n, v in os.__dict__.pop('_exec_env', {}).items()])(__import__('os'))"
)
_CHANGE_DIRECTORY = "(lambda os, to: (os.makedirs(to, exist_ok=True), os.chdir(to)))(__import__('os'), {path!r})"


def _silent(code: str) -> dict[str, Any]:
    return {**execute_request(code, allow_input=False), "silent": True, "store_history": False}


def set_variables_request(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that sets variables and keeps the values from before."""
    return _silent(_SET.format(env=dict(env)))


def restore_variables_request() -> dict[str, Any]:
    """Return the request that gives the variables the values from before."""
    return _silent(_RESTORE)


def change_directory_code(path: str) -> str:
    """Return code that makes a directory below the present one and changes to it."""
    return _CHANGE_DIRECTORY.format(path=path)
