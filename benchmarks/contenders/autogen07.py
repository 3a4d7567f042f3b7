"""autogen-ext's executor on nbclient, which starts a kernel of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor

from .worker import serve


class Executor:
    """The executor, as an agent uses it."""

    def __init__(self, executor: JupyterCodeExecutor, home: tempfile.TemporaryDirectory[str]) -> None:
        self._executor = executor
        self._home = home

    @classmethod
    async def make(cls) -> Executor:
        """Make and start the executor."""
        home = tempfile.TemporaryDirectory()
        executor = JupyterCodeExecutor(output_dir=home.name, timeout=120)
        await executor.start()
        return cls(executor, home)

    async def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        return str((await self._execute(code)).output)

    async def image(self, code: str) -> int:
        """Run code and return the size of the picture, which is then a file."""
        return size_of((await self._execute(code)).output_files[0])

    async def _execute(self, code: str) -> Any:
        blocks = [CodeBlock(code=code, language="python")]
        result = await self._executor.execute_code_blocks(blocks, CancellationToken())
        assert result.exit_code == 0, result.output
        return result

    async def close(self) -> None:
        """End the kernel."""
        await self._executor.stop()
        self._home.cleanup()


def size_of(path: str | Path) -> int:
    """Return the size of a file."""
    return Path(path).stat().st_size


if __name__ == "__main__":
    serve({"JupyterCodeExecutor": Executor.make})
