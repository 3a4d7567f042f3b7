"""What a scoped token costs: the warm round trip of the owner and of a token's bearer, interleaved, on one gateway."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.errors import ExecError

from .roundtrip import measure, timed

_START_SECONDS = 60.0
# Every limit is looked at, none is reached.
_LIMITS = {"max_sessions": 5, "max_open_executions": 50, "max_executions_per_minute": 10**6, "max_code_bytes": 10**5}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def gateway(home: Path) -> Iterator[ExecClient]:
    """Start a gateway that lets tokens use its kernels; yield its owner."""
    port, token = free_port(), secrets.token_hex(16)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "kernel_gateway", "--KernelGatewayApp.api=jupyter_exec_ext.gateway"),
            *(f"--KernelGatewayApp.port={port}", "--KernelGatewayApp.log_level=ERROR"),
            *("--ExecEngine.allow_unprotected_tokens=True", f"--ExecStore.path={home / 'store'}"),
            "--ExecEngine.policies={'wide': {'base': 'trusted'}}",
        ],
        env={**os.environ, "KG_AUTH_TOKEN": token},
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with ExecClient(f"http://127.0.0.1:{port}/", token, max_retries=0) as owner:
            give_up_at = time.monotonic() + _START_SECONDS
            while time.monotonic() < give_up_at:
                with contextlib.suppress(ExecError):
                    owner.info()
                    break
                time.sleep(0.1)
            yield owner
    finally:
        process.terminate()
        process.wait()


def compare(rounds: int) -> None:
    """Measure and print the ratio."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        owner = stack.enter_context(gateway(home))
        issued = owner.tokens.create("benchmark", sorted(ALL_SCOPES), policy="wide", limits=_LIMITS)
        scoped = stack.enter_context(ExecClient(owner.connection_info.url, issued.text))
        # Each once before and once after the other: whoever comes next pays for what the disk still does.
        order = {"owner": owner, "scoped token": scoped, "scoped token again": scoped, "owner again": owner}
        contestants = {name: timed(stack.enter_context(client.session()).run) for name, client in order.items()}
        times = measure(contestants, rounds)
    for code, by_name in times.items():
        plain = statistics.median(by_name["owner"] + by_name["owner again"])
        with_token = statistics.median(by_name["scoped token"] + by_name["scoped token again"])
        print(
            f"{code:10} owner {plain * 1e3:.2f} ms, scoped token {with_token * 1e3:.2f} ms, "
            f"ratio {with_token / plain:.3f}"
        )
