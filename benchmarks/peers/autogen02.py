"""AutoGen 0.2's executor on a stock Kernel Gateway; runs in the peer's environment."""

import json
import sys
import tempfile
import time
from pathlib import Path

from autogen.coding import CodeBlock
from autogen.coding.jupyter import JupyterCodeExecutor, LocalJupyterServer


def main() -> None:
    """Answer each line of code with the seconds it took."""
    with (
        tempfile.TemporaryDirectory() as logs,
        LocalJupyterServer(log_file=str(Path(logs) / "gateway.log")) as server,
    ):
        executor = JupyterCodeExecutor(server)
        for line in sys.stdin:
            block = CodeBlock(code=json.loads(line), language="python")
            began = time.perf_counter()
            result = executor.execute_code_blocks([block])
            took = time.perf_counter() - began
            assert result.exit_code == 0, result.output
            print(json.dumps(took), flush=True)


main()
