"""LangChain's own tool for Python code, which runs it with ``exec`` in the agent's process."""

from langchain_experimental.tools import PythonREPLTool

from .worker import serve


class Repl:
    """The tool, as an agent calls it."""

    def __init__(self) -> None:
        self._tool = PythonREPLTool()

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return str(self._tool.invoke(code))

    def close(self) -> None:
        """There is nothing to end."""


serve({"repl": Repl})
