"""Forked kernels for tests: a kernelspec, its kernels, and the processes that they come from."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.forkserver.forked_process import ForkedProcess
from jupyter_exec_ext.forkserver.forkserver_provisioner import fork_parents
from tests.support.kernelspecs import add_kernelspec

PROVISIONER = "forkserver-provisioner"
ARGV = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")


def add_plain(home: Path) -> None:
    """Install the kernelspec of the same kernels, started as usual."""
    add_kernelspec(home, "plain", "local-provisioner")


def add_forked(
    home: Path,
    name: str = "forked",
    argv: Sequence[str] = ARGV,
    env: Mapping[str, str] = MappingProxyType({}),
    **config: Any,
) -> None:
    """Install a kernelspec whose kernels are forked, in the data directory below `home`."""
    directory = home / "jupyter_data_dir" / "kernels" / name
    directory.mkdir(parents=True)
    stanza = {"provisioner_name": PROVISIONER, "config": config}
    metadata = {"kernel_provisioner": stanza}
    spec = {"argv": argv, "display_name": name, "language": "python", "env": {**env}, "metadata": metadata}
    (directory / "kernel.json").write_text(json.dumps(spec))


def retire_all() -> None:
    """Let the parents of this process end with their kernels, so that no test sees another's."""
    parents = fork_parents()
    with parents._lock:
        entries = list(parents._entries.values())
        parents._entries.clear()
    for entry in entries:
        if entry.parent.done() and entry.parent.exception() is None:
            entry.parent.result().retire()


@dataclass
class Kernel:
    """A kernel that runs, and a client of it."""

    manager: AsyncKernelManager
    client: Any

    @property
    def process(self) -> ForkedProcess:
        process = self.manager.provisioner.process  # type: ignore[union-attr]
        assert isinstance(process, ForkedProcess)
        return process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def parent(self) -> int:
        """The process that it was forked from."""
        return int(psutil.Process(self.pid).ppid())

    async def says(self, code: str, timeout: float = 60) -> str:
        """Return what code prints; of an error, its name and value."""
        said: list[str] = []

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            said.append(
                content.get("text", "") or (f"{content['ename']}: {content['evalue']}" if "ename" in content else "")
            )

        await self.client.execute_interactive(code, output_hook=take, timeout=timeout)
        return "".join(said).strip()


@asynccontextmanager
async def running(
    tmp_path: Path, name: str = "forked", env: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Kernel]:
    """Run a kernel."""
    manager = AsyncKernelManager(kernel_name=name, transport="ipc", connection_file=_connection_file(tmp_path))
    manager.ip = manager.connection_file.removesuffix(".json")
    await manager.start_kernel(env={**os.environ, **(env or {})}, **options)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)


def kernels_of(parent: psutil.Process) -> list[int]:
    """Return the kernels that were forked from a process, but for the child that waits to be one: it has one thread."""
    return [child.pid for child in parent.children() if child.num_threads() > 1]


async def until(condition: Callable[[], bool], patience_seconds: float = 30) -> None:
    """Return when a condition holds."""
    give_up_at = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < give_up_at, "it never came to hold"
        await asyncio.sleep(0.01)


def _connection_file(tmp_path: Path) -> str:
    count = len(list(tmp_path.glob("k*.json")))
    return str(tmp_path / f"k{count}-{os.urandom(2).hex()}.json")
