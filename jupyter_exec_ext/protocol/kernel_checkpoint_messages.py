"""Requests to an IPython kernel about checkpoints, and its replies; ``in_kernel/checkpoint.py`` has the program."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import CheckpointFailed, CheckpointUnsupported
from ..models import Hindrance
from .kernel_preparation import silent_request

_PACKAGE = Path(__file__).parent.parent
#: The modules of the program, in the order in which each finds those before it.
_MODULES = {
    "jupyter_exec_fork_requests": _PACKAGE / "forkserver" / "fork_requests.py",
    **{
        f"jupyter_exec_{name}": _PACKAGE / "in_kernel" / f"{name}.py"
        for name in ("bounded_output", "checkpoint_hindrances", "frozen_process", "restored_kernel", "checkpoint")
    },
}
_ANSWER = "checkpoint"
_MAX_HINDRANCES, _MAX_NAME = 50, 100
# Of an answer, which comes from a kernel that may be hostile, and of an error's text.
_MAX_ANSWER, _MAX_ERROR = 64 * 1024, 300
# Loads the modules, also in the place of earlier ones, which have things that must not be closed.
_LOADER = """\
import sys, types
for name, source in {sources!r}.items():
    before, module = sys.modules.get(name), types.ModuleType(name)
    module.before = before
    exec(compile(source, f"<{{name}}>", "exec"), module.__dict__)
    sys.modules[name] = module
"""


def loading_request() -> dict[str, Any]:
    """Return the content of the request by which a kernel loads the program."""
    return silent_request({_ANSWER: f"exec({_LOADER.format(sources=_sources())!r}, {{}})"})


def taking_request(address: str, nonce: str, *, force: bool, placeholder_signal: int = 0) -> dict[str, Any]:
    """Return the content of the request for a checkpoint.

    Parameters
    ----------
    address : str
        The Unix socket, as the kernel sees it, on which the server waits for the checkpoint's process.
    nonce : str
        Token that the process sends first, by which the server knows it.
    force : bool
        Make the checkpoint even if something cannot be taken along.
    placeholder_signal : int
        Signal that will tell the kernel to hold its place in its sandbox for another one; 0 for none.
    """
    options = f"force={force}, placeholder_signal={placeholder_signal}"
    take = f"__import__('jupyter_exec_checkpoint').schedule_checkpoint({address!r}, {nonce!r}, {options})"
    return silent_request({_ANSWER: take})


def abandoning_request() -> dict[str, Any]:
    """Return the content of the request to kill the last checkpoint's process, which has not answered."""
    return silent_request({_ANSWER: "__import__('jupyter_exec_checkpoint').kill_last()"})


def forgetting_request() -> dict[str, Any]:
    """Return the content of the request that tells a kernel of the end of its last checkpoint."""
    return silent_request({_ANSWER: "__import__('jupyter_exec_checkpoint').unfreeze_garbage()"})


@cache
def _sources() -> dict[str, str]:
    return {name: file.read_text(encoding="utf-8") for name, file in _MODULES.items()}


def require_loaded(reply: Mapping[str, Any]) -> None:
    """Read the reply to `loading_request`.

    Raises
    ------
    CheckpointUnsupported
        If the kernel could not load the program.
    """
    try:
        _answer_of(reply)
    except CheckpointFailed as error:
        raise CheckpointUnsupported(error.message) from None


def hindrances_of(reply: Mapping[str, Any]) -> tuple[Hindrance, ...]:
    """Return what cannot be taken along, by the reply to `taking_request`.

    Raises
    ------
    CheckpointFailed
        If the kernel could not find out, or has answered something else.
    """
    try:
        found = json.loads(ast.literal_eval(_answer_of(reply)))
        return tuple(Hindrance(str(kind)[:_MAX_NAME], str(name)[:_MAX_NAME]) for kind, name in found[:_MAX_HINDRANCES])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise CheckpointFailed("the kernel's answer to the request for a checkpoint cannot be read") from None


def _answer_of(reply: Mapping[str, Any]) -> str:
    answers = reply.get("user_expressions")
    answer = answers.get(_ANSWER) if isinstance(answers, Mapping) else None
    if not isinstance(answer, Mapping):
        raise CheckpointFailed("the kernel did not answer the request for a checkpoint; it may have no IPython")
    if answer.get("status") != "ok":
        error = f"{answer.get('ename')}: {answer.get('evalue')}"
        raise CheckpointFailed(f"the kernel cannot make checkpoints: {error[:_MAX_ERROR]}")
    data = answer.get("data")
    text = str(data.get("text/plain", "")) if isinstance(data, Mapping) else ""
    if len(text) > _MAX_ANSWER:
        raise CheckpointFailed("the kernel's answer to the request for a checkpoint is too long")
    return text
