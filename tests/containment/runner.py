"""Lets a kernel carry out the probes, one by one, and says what came of them.

Which kernel that is, and how it was started, is not known here::

    with World() as world, PlainKernel(world) as kernel:
        found = run_probes(kernel.start(), world, kernel.start)

    found                 which probes had an effect: {"service_of_the_host": True, ...}
    found.open            the names of those
    found.notes           what stopped the others, or what was seen outside
    found.errors          mistakes in the probes themselves; such a probe says nothing about the sandbox
"""

from __future__ import annotations

import ast
import json
import os
import queue
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from tests.containment.inside import Probe
from tests.containment.probes import PROBES, SOURCES
from tests.containment.world import World

DEADLINE_SECONDS = 20.0

Restart = Callable[[], BlockingKernelClient]

_PREPARE = """
import sys, types
for _name, _text in {sources!r}.items():
    _module = sys.modules[_name] = types.ModuleType(_name)
    if "." in _name:
        setattr(sys.modules[_name.rpartition(".")[0]], _name.rpartition(".")[2], _module)
    exec(compile(_text, _name, "exec"), vars(_module))
"""
_WHERE = "__import__('json').dumps([__import__('os').geteuid(), __import__('os').readlink('/proc/self/ns/mnt')])"
_ATTEMPT = (
    "__import__('sys').modules['tests.containment.inside'].attempt({name!r}, __import__('json').loads({facts!r}))"
)


class Unprotected(RuntimeError):
    """The kernel runs as root in the host's own mounts; no attack is tried there."""


class NoAnswer(TimeoutError):
    """The kernel did not answer in time."""


class Found(dict[str, bool]):
    """Which probes had an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, str] = {}
        self.errors: dict[str, str] = {}

    @property
    def open(self) -> list[str]:
        """The probes that had an effect."""
        return [name for name, had_effect in self.items() if had_effect]


def run_probes(
    client: BlockingKernelClient,
    world: World,
    restart: Restart,
    *,
    probes: Iterable[Probe] | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Found:
    """Let a kernel carry out the probes.

    Parameters
    ----------
    client : BlockingKernelClient
        Of a kernel that is ready, has the world's work directory as its own, and was started while the world existed.
    world : World
        What is attacked.
    restart : callable
        Ends the kernel with all that belongs to it, as at the end of a session, starts another one like it, and returns
        a client of that. It is called after a probe that ended the kernel, or whose effect is what stays behind.
    probes : iterable of Probe or None
        Which ones; None means all.
    deadline_seconds : float
        How long each may take.

    Raises
    ------
    Unprotected
        If the kernel is in a position to harm the machine that the tests run on.
    """
    runner = _Runner(client, world, restart, deadline_seconds)
    for probe in PROBES.values() if probes is None else probes:
        runner.run(probe)
    return runner.found


class _Runner:
    def __init__(self, client: BlockingKernelClient, world: World, restart: Restart, deadline_seconds: float) -> None:
        self.found = Found()
        self._client = client
        self._world = world
        self._restart = restart
        self._deadline_seconds = deadline_seconds
        self._prepare()

    def run(self, probe: Probe) -> None:
        mark = f"mark-{secrets.token_hex(8)}"
        self._world.effects(mark)
        said: dict[str, Any] = {"open": False, "note": "", "error": None}
        answered = True
        try:
            said = json.loads(
                self._ask(_ATTEMPT.format(name=probe.name, facts=json.dumps(self._world.facts | {"mark": mark})))
            )
        except NoAnswer:
            answered = False
            if self._client.is_alive():
                said["error"] = f"no answer within {self._deadline_seconds:g} s"
            else:
                said["note"] = "kernel died"
        if probe.outlives or not answered:
            self._client = self._restart()
            self._prepare()
        effects = self._world.effects(mark)
        if probe.outlives:
            effects += [f"process {pid} is still there" for pid in self._world.left_behind(mark)]
        self.found[probe.name] = said["open"] or bool(effects)
        self.found.notes[probe.name] = "; ".join([*([said["note"]] if said["note"] else []), *effects])
        if said["error"]:
            self.found.errors[probe.name] = said["error"]

    def _prepare(self) -> None:
        """Send the probes, if this is a kernel that may be let to try them."""
        user, mounts = json.loads(self._ask(_WHERE))
        if user == 0 and mounts == os.readlink("/proc/self/ns/mnt"):
            raise Unprotected("the kernel is root in the host's own mounts")
        self._ask("None", code=_PREPARE.format(sources=SOURCES))

    def _ask(self, expression: str, code: str = "") -> str:
        """Return what an expression is in the kernel, which must be a text."""
        asked = self._client.execute(code, silent=True, store_history=False, user_expressions={"it": expression})
        until = time.monotonic() + self._deadline_seconds
        while True:
            try:
                reply = self._client.get_shell_msg(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                raise NoAnswer from None
            if reply["parent_header"].get("msg_id") == asked:
                break
        content = reply["content"]
        if content["status"] != "ok" or content["user_expressions"]["it"]["status"] != "ok":
            raise RuntimeError(f"the kernel could not be asked: {content}")
        return str(ast.literal_eval(content["user_expressions"]["it"]["data"]["text/plain"]))
