"""A stock Kernel Gateway for peers that bring none of their own, outside a container."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

_START_SECONDS = 60.0


@contextmanager
def stock_gateway() -> Iterator[tuple[int, str]]:
    """Run a gateway as its package is installed here; gives its port on this machine and its token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    token = secrets.token_hex(16)
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_gateway", f"--KernelGatewayApp.port={port}", "--KernelGatewayApp.ip=127.0.0.1"],
        env={**os.environ, "KG_AUTH_TOKEN": token},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/api", process)
        yield port, token
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until something answers, whatever it says."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as answer:  # that we may not is an answer
            answer.close()
        except OSError:
            time.sleep(0.05)
            continue
        return
    raise RuntimeError("the Kernel Gateway does not answer")
