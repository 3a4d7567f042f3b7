"""smolagents' LocalPythonExecutor, which interprets the syntax tree in the agent's own process: for scale."""

from __future__ import annotations

from smolagents.local_python_executor import LocalPythonExecutor

from .worker import serve


class Executor:
    """The executor, as a CodeAgent without tools prepares and calls it."""

    def __init__(self) -> None:
        self._executor = LocalPythonExecutor([])
        self._executor.send_tools({})

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return str(self._executor(code).logs)

    def close(self) -> None:
        """Nothing was started."""


if __name__ == "__main__":
    serve({"LocalPythonExecutor": Executor})
