"""What our preparation replaces in a kernel is what the list says, with the newest and the oldest ipykernel."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import sys
from typing import Any

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.protocol.kernel_preparation import keeping_request, unattended_request, waiting_request
from tests.support.environments import ROOT, environment

# Attributes that our kernels replace in ipykernel and IPython, by the object that has them; each with the file that
# does it, and why. No class of a live object is ever changed.
REPLACED = {
    "stdout.write": ("bounded_output", "prints in parts that wait for slow readers, so that a flood takes no memory"),
    "stderr.write": ("bounded_output", "the same"),
    "shell._tee": ("bounded_output", "keeps only the beginning of a cell's text for %notebook, which has no bound"),
    "session.pack": ("defaults", "sends text with lone surrogates, which jupyter_client refuses"),
    "display_pub.publish": ("defaults", "adds a picture to a plot that is shown as data alone"),
    "display_formatter.format": ("defaults", "adds a picture to a plot that is a cell's value"),
    "shell.exiter": ("unattended", "exit() ends the code, not the kernel"),
    "shell.showtraceback": ("unattended", "shows exits as a script would, without advice for a person"),
    "interactiveshell.warn": ("unattended", "drops IPython's advice on how to exit"),
    "shell.run_cell_magic": ("unattended", "ends a %%bash cell with its shell, not with its background processes"),
    "shell.publish_output_by_descriptor": (
        "unattended",
        "new: has the streams of a kernel from a checkpoint do the next two",
    ),
    "stdout.fileno": ("unattended", "names the descriptor from which ipykernel reads, not its copy"),
    "stderr.fileno": ("unattended", "the same"),
}
# Configuration that is set, which ipykernel and IPython offer for that.
CONFIGURED = {
    "kernel._execute_sleep": ("bounded_output", "no sleep after each cell: our readers wait for `idle`"),
    "history_manager.db_cache_size": ("bounded_output", "the history is written in batches"),
}

# The oldest is the one in `pyproject.toml`.
OLDEST = ["ipykernel==6.29.0"]

# Notes the classes of a kernel's objects, what they hold that can be called, and the same of all modules and classes.
SNAPSHOT = """
import functools, sys, types
from IPython.core import interactiveshell
shell = get_ipython()
OBJECTS = {
    "kernel": shell.kernel, "shell": shell, "session": shell.kernel.session, "iopub_thread": shell.kernel.iopub_thread,
    "stdout": sys.stdout, "stderr": sys.stderr, "display_pub": shell.display_pub, "displayhook": shell.displayhook,
    "display_formatter": shell.display_formatter, "history_manager": shell.history_manager,
}
FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
SETTINGS = ("exiter", "_execute_sleep", "db_cache_size")

def snapshot():
    noted = {}
    for owner, thing in OBJECTS.items():
        noted[f"{owner}.__class__"] = type(thing)
        held = {**vars(thing), **getattr(thing, "_trait_values", {})}
        noted.update((f"{owner}.{name}", value) for name, value in held.items() if isinstance(value, FUNCTIONS))
        noted.update((f"{owner}.{name}", getattr(thing, name)) for name in SETTINGS if hasattr(thing, name))
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] in ("ipykernel", "IPython")]:
        short = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if callable(value):
                noted[f"{short}.{name}"] = value
            if isinstance(value, type) and value.__module__ == module.__name__:
                noted.update((f"{short}.{name}.{key}", inner) for key, inner in vars(value).items() if callable(inner))
    return noted

before = snapshot()
"""
COMPARE = """
import json
after = snapshot()
# A module that was imported meanwhile has replaced nothing.
result = json.dumps(sorted(name for name in before if before[name] is not after.get(name)) + sorted(
    name for name in after if name not in before and name.partition(".")[0] in OBJECTS))
"""


def expression(code: str) -> dict[str, Any]:
    """Return a request that runs code outside a cell, while which IPython replaces the streams' `write`."""
    call = f"exec({code!r}, __import__('sys').__dict__.setdefault('_noted', {{'get_ipython': get_ipython}}))"
    return {**unattended_request(), "user_expressions": {"code": call}}


async def ask(client: AsyncKernelClient, content: dict[str, Any]) -> dict[str, Any]:
    """Send an execute_request and return the content of its reply."""
    message = client.session.msg("execute_request", content)
    client.shell_channel.send(message)
    while True:
        reply = await client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            found: dict[str, Any] = reply["content"]
            return found


async def replaced_in(python: str) -> set[str]:
    """Return the names of what is another thing in a kernel of that Python once it is prepared."""
    manager = AsyncKernelManager()
    manager.kernel_spec.argv[0] = python  # type: ignore[union-attr]
    # With this variable ipykernel does not watch the descriptors of its streams.
    await manager.start_kernel(env={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"})
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(60)
        for request in (
            expression(SNAPSHOT),
            *(waiting_request(draws_plots=True), keeping_request(), unattended_request()),
            expression(COMPARE),
        ):
            reply = await ask(client, request)
            assert {answer["status"] for answer in reply["user_expressions"].values()} == {"ok"}, reply
        result = {**request, "user_expressions": {"result": "__import__('sys')._noted['result']"}}
        reply = await ask(client, result)
        return set(json.loads(ast.literal_eval(reply["user_expressions"]["result"]["data"]["text/plain"])))
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("ipykernel", ["newest", "oldest"])
async def test_only_what_is_listed_is_replaced(ipykernel: str) -> None:
    python = sys.executable
    if ipykernel == "oldest":
        python = str(await asyncio.to_thread(environment, ROOT / ".kernels" / "oldest", OLDEST))
    assert await replaced_in(python) <= {*REPLACED, *CONFIGURED}


async def test_everything_that_is_listed_is_replaced() -> None:
    found = await replaced_in(sys.executable)
    assert {*REPLACED, *CONFIGURED} - found == set()
