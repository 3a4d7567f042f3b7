"""The fixture server on the SDK's own transport: ``python -m tests.mcp.reference_server`` prints its URL and serves.

Checks that fail here fail by the SDK, and not by the transport of this package.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tests.mcp.fixture_tools import fixture_server


def main() -> None:
    """Serve until the process is stopped."""
    app = fixture_server().streamable_http_app(streamable_http_path="/mcp")
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        server.run([listening])


@contextmanager
def running_reference() -> Iterator[str]:
    """Start the server in a process of its own; yield its URL."""
    command = [sys.executable, "-m", "tests.mcp.reference_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, "the reference server did not start"
            yield url
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
