"""Cost of a session pool's kernels for the process that holds them while nobody uses them, and the time to start one.

    python -m benchmarks.aca [NUMBER]

They are started in a process of their own by jupyter_client's multi-kernel manager, as Jupyter Server does, and looked
at for a minute. Nothing is asked of a pool, since a session begins with the first request: so this is without the
network's share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from jupyter_client.multikernelmanager import AsyncMultiKernelManager

_WATCHED_SECONDS = 30.0
_WARM = 3  # the first ones load the libraries


def add_kernelspec(directory: str) -> None:
    """Install a kernelspec of a pool that nobody asks anything."""
    place = Path(directory, "kernels", "pool")
    place.mkdir(parents=True)
    config = {"endpoint": "http://127.0.0.1:9/pool", "credential": "env:NO_TOKEN"}
    stanza = {"provisioner_name": "aca-provisioner", "config": config}
    spec = {"argv": [], "display_name": "pool", "language": "python", "metadata": {"kernel_provisioner": stanza}}
    (place / "kernel.json").write_text(json.dumps(spec | {"interrupt_mode": "message"}))


def pss_bytes() -> int:
    """Return this process's share of the memory it uses."""
    return int(psutil.Process().memory_full_info().pss)


def cpu_seconds() -> float:
    """Return the processor time that this process has used."""
    times = psutil.Process().cpu_times()
    return times.user + times.system


async def cpu_share() -> float:
    """Return which share of a processor is used while nothing is asked for."""
    used, began = cpu_seconds(), time.perf_counter()
    await asyncio.sleep(_WATCHED_SECONDS)
    return (cpu_seconds() - used) / (time.perf_counter() - began)


async def measure(number: int) -> None:
    """Start kernels, look at them, and print what was seen."""
    manager = AsyncMultiKernelManager(connection_dir=os.environ["JUPYTER_RUNTIME_DIR"])

    async def start() -> tuple[float, float]:
        """Return how long it takes until the kernel has started, and until one who connects then has an answer."""
        began = time.perf_counter()
        kernel_id = await manager.start_kernel(kernel_name="pool")
        started = time.perf_counter()
        client = manager.get_kernel(kernel_id).client()
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
        try:
            await client.kernel_info(reply=True, timeout=30)
            return started - began, time.perf_counter() - began
        finally:
            client.stop_channels()

    for _ in range(_WARM):
        await start()
    before = pss_bytes()
    both = [await start() for _ in range(number)]
    each = (pss_bytes() - before) / number
    with_restarters = await cpu_share()
    for kernel_id in manager.list_kernel_ids():
        manager.get_kernel(kernel_id).stop_restarter()  # as our engine does with those of its sessions
    share = await cpu_share()
    print(f"{number} idle kernels: {each / 1024:.0f} KiB each (PSS), {with_restarters:.2%} of a processor in all,")
    print(f"which is jupyter_client's restarters: each asks every 15 s whether its kernel lives. Without: {share:.2%}")
    for what, seconds in zip(("start", "start to the first answer"), zip(*both, strict=True), strict=True):
        print(
            f"{what}: median {median(seconds) * 1000:.1f} ms, "
            f"95th percentile {sorted(seconds)[int(0.95 * number)] * 1000:.1f} ms"
        )
    print("10 ms of each are a sleep in jupyter_client's manager, whatever it starts")
    began = time.perf_counter()
    await manager.shutdown_all(now=True)
    print(f"all shut down in {time.perf_counter() - began:.1f} s")


def main() -> None:
    """Run it with kernelspecs of its own."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JUPYTER_DATA_DIR"] = os.environ["JUPYTER_RUNTIME_DIR"] = directory
        add_kernelspec(directory)
        asyncio.run(measure(number))


if __name__ == "__main__":
    main()
