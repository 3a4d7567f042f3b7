"""AutoGen 0.2's executor on a Kernel Gateway that runs already."""

from __future__ import annotations

import tempfile
from pathlib import Path

from autogen.coding import CodeBlock
from autogen.coding.jupyter import JupyterCodeExecutor, JupyterConnectionInfo

from .worker import serve


class Executor:
    """The executor, as an agent uses it."""

    def __init__(self, host: str, port: int, token: str) -> None:
        info = JupyterConnectionInfo(host=host, use_https=False, port=port, token=token)
        self._home = tempfile.TemporaryDirectory()
        self._executor = JupyterCodeExecutor(info, output_dir=self._home.name, timeout=120)

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        result = self._executor.execute_code_blocks([CodeBlock(code=code, language="python")])
        assert result.exit_code == 0, result.output
        return str(result.output)

    def image(self, code: str) -> int:
        """Run code and return the size of the picture, which is then a file."""
        result = self._executor.execute_code_blocks([CodeBlock(code=code, language="python")])
        return Path(result.output_files[0]).stat().st_size

    def close(self) -> None:
        """End the kernel."""
        self._executor.stop()
        self._home.cleanup()


if __name__ == "__main__":
    serve({"JupyterCodeExecutor": Executor})
