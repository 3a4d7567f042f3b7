"""Our executors and adapters: on a LocalJupyterServer that runs already, and with a kernel of the agent's process."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import closing
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock as AutoGenBlock

from jupyter_exec_ext import (
    CodeBlock,
    EmbeddedIPythonCodeExecutor,
    JupyterCodeExecutor,
    JupyterConnectable,
    LocalJupyterServer,
)
from jupyter_exec_ext.adapters import autogen, langchain, smolagents

from .worker import serve


class Executor:
    """An executor of blocks, as an AutoGen agent uses it."""

    def __init__(self, executor: JupyterCodeExecutor | EmbeddedIPythonCodeExecutor) -> None:
        self._executor = executor

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        result = self._executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.exit_code == 0, result.output
        return result.output

    def close(self) -> None:
        """End the kernel."""
        self._executor.stop()


class AutoGen:
    """The adapter for AutoGen 0.4 and later, on an event loop that runs only while it is waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: JupyterConnectable, home: str) -> None:
        self._loop = loop
        self._executor = autogen.JupyterCodeExecutor(jupyter_server=server, output_dir=home)
        loop.run_until_complete(self._executor.start())

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        running = self._executor.execute_code_blocks([AutoGenBlock(code=code, language="python")], CancellationToken())
        result = self._loop.run_until_complete(running)
        assert result.exit_code == 0, result.output
        return str(result.output)

    def close(self) -> None:
        """End the kernel."""
        self._loop.run_until_complete(self._executor.stop())


class Smolagents:
    """The adapter for smolagents, as a CodeAgent without tools prepares and calls it."""

    def __init__(self, server: JupyterConnectable) -> None:
        self._executor = smolagents.JupyterPythonExecutor(server)
        self._executor.send_tools({})

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return str(self._executor(code).logs)

    def close(self) -> None:
        """End the kernel."""
        self._executor.cleanup()


class LangChain:
    """The tool for LangChain's agents."""

    def __init__(self, server: JupyterConnectable) -> None:
        self._tool = langchain.JupyterCodeTool(server)

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        return str(self._tool.invoke({"code": code}))

    def close(self) -> None:
        """End the kernel."""
        self._tool.close()


def main() -> None:
    """Serve all."""
    loop = asyncio.new_event_loop()
    with (
        closing(loop),
        tempfile.TemporaryDirectory() as home,
        LocalJupyterServer(log_file=str(Path(home) / "gateway.log"), log_level="ERROR") as server,
    ):
        serve(
            {
                "server": lambda: Executor(JupyterCodeExecutor(server, output_dir=home)),
                "embedded": lambda: Executor(EmbeddedIPythonCodeExecutor(output_dir=home)),
                "autogen": lambda: AutoGen(loop, server, home),
                "smolagents": lambda: Smolagents(server),
                "langchain": lambda: LangChain(server),
            }
        )


main()
