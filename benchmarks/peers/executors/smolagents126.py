"""smolagents' executors: DockerExecutor's way to a Kernel Gateway, without the container, and LocalPythonExecutor."""

from __future__ import annotations

import requests
from smolagents.local_python_executor import LocalPythonExecutor, PythonExecutor
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import DockerExecutor, RemotePythonExecutor, _create_kernel_http

from .gateway import stock_gateway
from .worker import serve


class OnGateway(DockerExecutor):
    """What DockerExecutor's ``__init__`` does once its container runs; the rest is DockerExecutor's."""

    def __init__(self, port: int, token: str) -> None:
        RemotePythonExecutor.__init__(self, [], AgentLogger(LogLevel.OFF))
        self.base_url = f"http://127.0.0.1:{port}"
        self._wait_for_server(token)
        self.kernel_id = _create_kernel_http(f"{self.base_url}/api/kernels?token={token}", self.logger)
        self.ws_url = f"ws://127.0.0.1:{port}/api/kernels/{self.kernel_id}/channels?token={token}"
        self._token = token

    def cleanup(self) -> None:
        """End the kernel, which would end with the container."""
        url = f"{self.base_url}/api/kernels/{self.kernel_id}"
        requests.delete(url, headers={"Authorization": f"token {self._token}"}, timeout=60).raise_for_status()


class Prepared:
    """An executor as a CodeAgent without tools prepares and calls it."""

    def __init__(self, executor: PythonExecutor) -> None:
        self._executor = executor
        executor.send_tools({})

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return str(self._executor(code).logs)

    def close(self) -> None:
        """End what the executor started, if it started anything."""
        if isinstance(self._executor, RemotePythonExecutor):
            self._executor.cleanup()


def main() -> None:
    """Serve both."""
    with stock_gateway() as (port, token):
        serve(
            {
                "gateway": lambda: Prepared(OnGateway(port, token)),
                "local": lambda: Prepared(LocalPythonExecutor([])),
            }
        )


main()
