"""Times of commands in a shell: `jupyter exec --help` and `jupyter exec run`, beside an import and a bare gateway."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..bench import Bench, WrongAnswerError
from ..contenders.gateway_websocket import Kernel
from ..interleave import interleaved
from ..processes import settle
from ..servers import Place, running

HELP_TABLE, RUN_TABLE = "command from a shell to its end", "command that starts a gateway, to its first result"
HELP, REQUESTS = "jupyter exec --help", "python -c 'import requests'"
RUN, BARE = "jupyter exec run -c 1", "Kernel Gateway as it comes: start, kernel, first result"
# As a shell finds it: `jupyter` looks for `jupyter-exec` beside itself.
_JUPYTER = str(Path(sys.executable).with_name("jupyter"))
_BARE = Place(("-m", "kernel_gateway"))


def process_milliseconds(arguments: Sequence[str], expected: str) -> float:
    """Return the time of a command to its end.

    Raises
    ------
    WrongAnswerError
        If it does not print what is expected.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))} | {"HOME": home}
        began = time.perf_counter()
        done = subprocess.run(arguments, cwd=home, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
    if done.returncode or expected not in done.stdout:
        raise WrongAnswerError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return seconds * 1e3


def bare_milliseconds() -> float:
    """Return the time from the start of a stock gateway to the first result of a kernel of it."""

    async def first_result(url: str, token: str) -> float:
        began = time.perf_counter()
        kernel = await Kernel.make(url, token)
        printed = await kernel.run("print(1)")
        seconds = time.perf_counter() - began
        await kernel.close()
        if printed != "1\n":
            raise WrongAnswerError(f"{BARE} gave {printed!r} for 'print(1)'")
        return seconds

    with running(_BARE) as server:
        return (server.seconds + asyncio.run(first_result(server.url, server.token))) * 1e3


def measure(bench: Bench) -> None:
    """Measure."""
    short = {
        HELP: lambda: process_milliseconds([_JUPYTER, "exec", "--help"], "usage: jupyter exec"),
        REQUESTS: lambda: process_milliseconds([sys.executable, "-c", "import requests"], ""),
    }
    bench.results.add(HELP_TABLE, "ms", interleaved(short, bench.times(0.5), 1))
    whole = {RUN: lambda: process_milliseconds([_JUPYTER, "exec", "run", "-c", "1"], "1\n"), BARE: bare_milliseconds}
    bench.results.add(RUN_TABLE, "ms", interleaved(whole, bench.times(0.25), 1, settle))
