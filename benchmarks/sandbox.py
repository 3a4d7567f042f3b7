"""What a sandbox costs: the start of a kernel and the round trip of `1`, sandboxed and plain, in turns on one machine.

python -m benchmarks.sandbox [--rounds 30]

Both kernels are started by jupyter_client's own manager, which differs only in the provisioner that the kernelspec
names. A start ends when the kernel has answered for the first time; "launched" is when its process runs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from typing import Any

from jupyter_client.manager import AsyncKernelManager

_RUNS = 20
_SECONDS = 60.0
_SANDBOX = {"kernel_provisioner": {"provisioner_name": "sandbox-provisioner", "config": {}}}


async def one(sandboxed: bool, cwd: str) -> tuple[float, float, float]:
    """Start a kernel and run something in it; return when it was launched, when it was ready, and the round trip."""
    manager = AsyncKernelManager(kernel_name="python3")
    spec = manager.kernel_spec
    assert spec is not None
    if sandboxed:
        spec.metadata = {**spec.metadata, **_SANDBOX}
    begun = time.perf_counter()
    await manager.start_kernel(cwd=cwd)
    launched = time.perf_counter() - begun
    client: Any = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=_SECONDS)
        ready = time.perf_counter() - begun
        return launched, ready, statistics.median([await round_trip(client) for _ in range(_RUNS)])
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def round_trip(client: Any) -> float:
    """Return how many seconds it takes from sending `1` to its reply."""
    begun = time.perf_counter()
    await client.execute("1", silent=True, reply=True, timeout=_SECONDS)
    return time.perf_counter() - begun


async def compare(rounds: int) -> None:
    """Measure in turns, and print the medians and what the sandbox adds, paired."""
    names = ("launched", "ready", "round trip")
    plain: list[tuple[float, float, float]] = []
    boxed: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory() as cwd:
        for sandboxed in (False, True):
            await one(sandboxed, cwd)  # what is done once only
        for number in range(rounds):
            for sandboxed in (False, True) if number % 2 else (True, False):
                (boxed if sandboxed else plain).append(await one(sandboxed, cwd))
    for index, name in enumerate(names):
        pairs = [(with_[index] - without[index]) * 1e3 for with_, without in zip(boxed, plain, strict=True)]
        medians = [statistics.median(series[index] for series in kind) * 1e3 for kind in (plain, boxed)]
        print(
            f"{name:10} plain {medians[0]:8.2f} ms, sandboxed {medians[1]:8.2f} ms, "
            f"added (paired, n={rounds}) {statistics.median(pairs):+.2f} ms"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="pairs of kernels to start (default: 30)")
    logging.disable(logging.WARNING)
    asyncio.run(compare(parser.parse_args().rounds))
