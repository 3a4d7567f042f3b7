"""autogen-ext's executors: the one on nbclient, and that of its Docker server, here on a stock Kernel Gateway."""

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor
from autogen_ext.code_executors.docker_jupyter._jupyter_server import JupyterConnectionInfo
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor

from .gateway import stock_gateway
from .worker import serve


class OnLoop:
    """An asynchronous executor on an event loop that runs only while it is waited for, as in ``asyncio.run``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, made: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._executor = loop.run_until_complete(made)

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        block = CodeBlock(code=code, language="python")
        result = self._loop.run_until_complete(self._executor.execute_code_blocks([block], CancellationToken()))
        assert result.exit_code == 0, result.output
        return str(result.output)

    def close(self) -> None:
        """End the kernel."""
        self._loop.run_until_complete(self._executor.stop())


async def nbclient(home: str) -> JupyterCodeExecutor:
    """Make and start the executor with a kernel of its own."""
    executor = JupyterCodeExecutor(output_dir=home)
    await executor.start()
    return executor


async def docker_jupyter(info: JupyterConnectionInfo, home: str) -> DockerJupyterCodeExecutor:
    """Make and start the executor that talks to a gateway."""
    executor = DockerJupyterCodeExecutor(info, output_dir=Path(home))
    await executor.start()
    return executor


def main() -> None:
    """Serve both."""
    loop = asyncio.new_event_loop()
    with closing(loop), tempfile.TemporaryDirectory() as home, stock_gateway() as (port, token):
        info = JupyterConnectionInfo(host="127.0.0.1", use_https=False, port=port, token=token)
        serve(
            {
                "nbclient": lambda: OnLoop(loop, nbclient(home)),
                "docker_jupyter": lambda: OnLoop(loop, docker_jupyter(info, home)),
            }
        )


main()
