"""An agent in a process of its own, and what a test asks of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jupyter_exec_ext import JupyterConnectionInfo
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host

SCRIPT = Path(__file__).parent / "agent.py"


class Agent:
    """Calls what `agent.py` can do, by its name; answers come in the order of the calls."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, name: str, /, **arguments: Any) -> None:
        """Ask for something, and do not wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the next answer, which has a `result` or an `error`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the agent's process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def result(self) -> Any:
        """Return the next result."""
        answer = self.answer()
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        """Ask for something; return its result."""
        self.begin(name, **arguments)
        return self.result()


@contextmanager
def running_agent(connection: JupyterConnectionInfo, home: Path) -> Iterator[Agent]:
    """Run an agent with this connection; its process is ended, its sessions are not."""
    process = subprocess.Popen(
        [sys.executable, SCRIPT], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        agent = Agent(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(connection)) + "\n")
        yield agent
    finally:
        process.kill()
        process.communicate()


@contextmanager
def cautious_agent(host: Host, home: Path) -> Iterator[Agent]:
    """Run an agent with a token whose policy asks a person about shell commands."""
    bearer = mint(host, policy="asks", name="cautious")
    try:
        with running_agent(replace(host.info, token=bearer.token), home) as agent:
            yield agent
    finally:
        owner_of(host).call("DELETE", f"/tokens/{bearer.id}")
