"""AutoGen 0.2's executors: on a stock Kernel Gateway and with a kernel of its own."""

import tempfile
from typing import Any

from autogen.coding import CodeBlock
from autogen.coding.jupyter import EmbeddedIPythonCodeExecutor, JupyterCodeExecutor, JupyterConnectionInfo

from .gateway import stock_gateway
from .worker import serve


class OnGateway:
    """AutoGen's executor, as an agent uses it."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        result = self._executor.execute_code_blocks([CodeBlock(code=code, language="python")])
        assert result.exit_code == 0, result.output
        return str(result.output)

    def close(self) -> None:
        """End the kernel."""
        self._executor.stop()


class Embedded(OnGateway):
    """The same; this executor has no method that ends it."""

    def close(self) -> None:
        """End the kernel."""
        self._executor._kernel_client.stop_channels()
        self._executor._kernel_manager.shutdown_kernel(now=True)


def main() -> None:
    """Serve both."""
    with tempfile.TemporaryDirectory() as home, stock_gateway() as (port, token):
        info = JupyterConnectionInfo(host="127.0.0.1", use_https=False, port=port, token=token)
        serve(
            {
                "gateway": lambda: OnGateway(JupyterCodeExecutor(info, output_dir=home)),
                "embedded": lambda: Embedded(EmbeddedIPythonCodeExecutor(output_dir=home)),
            }
        )


main()
