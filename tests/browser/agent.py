"""An agent's process: it does what the lines of its standard input say, with the executor that agents use.

It is run as a script, outside of the checkout, so that it has the package that is installed. A line is JSON, a name and
arguments; so is each answer, in the order of the lines.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_exec_ext import CodeBlock, ExecClient, JupyterCodeExecutor, JupyterConnectionInfo
from jupyter_exec_ext.client import ExecSession
from jupyter_exec_ext.errors import ExecError


class Agent:
    """Has one session by name, and one executor."""

    def __init__(self, connection: JupyterConnectionInfo) -> None:
        self._connection = connection
        self._client = ExecClient(connection)
        self._sessions: dict[str, ExecSession] = {}
        self._executor: JupyterCodeExecutor | None = None

    def open(self, name: str, **options: Any) -> str:
        """Start a session; return its id."""
        session = self._client.session(name=name, **options)
        self._sessions[session.id] = session
        return session.id

    def run(self, session_id: str, code: str) -> dict[str, Any]:
        """Run code to its end."""
        done = self._sessions[session_id].run(code)
        approval = done.approval
        return {
            "id": done.id,
            "state": done.state,
            "stdout": done.stdout,
            "reason": done.reason,
            "code": done.code,
            "approval": approval and {"decision": approval.decision, "reason": approval.reason},
        }

    def run_quietly(self, session_id: str, code: str) -> str:
        """Run code that says much; return how it ended."""
        return self._sessions[session_id].run(code).state

    def run_often(self, session_id: str, count: int) -> None:
        """Run so many lines of code, one after the other."""
        for number in range(count):
            self._sessions[session_id].run(str(number))

    def ask(self, session_id: str, code: str) -> str:
        """Run code that asks, and leave the answer to a person; return how it ended."""
        handle = self._sessions[session_id].submit(code, allow_input=True)
        return handle.result().state

    def blocks(self, code: str) -> dict[str, Any]:
        """Run a code block with the executor that AutoGen's agents have."""
        self._executor = self._executor or JupyterCodeExecutor(self._connection)
        done = self._executor.execute_code_blocks([CodeBlock(language="python", code=code)])
        return {"exit_code": done.exit_code, "output": done.output}

    def close(self, session_id: str) -> None:
        """Shut a session down."""
        self._sessions.pop(session_id).close()


def main() -> None:
    """Serve until the input ends."""
    agent = Agent(JupyterConnectionInfo(**json.loads(sys.stdin.readline())))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"result": getattr(agent, name)(**arguments)}
        except (ExecError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
