"""Kernels that are sessions of a pool: the pool is a server of ours that answers as one, over a real socket."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.aca.protocol.addresses import DEFAULT_API_VERSION
from tests.support.hosts import Host

VARIABLE = "EXEC_TEST_POOL_TOKEN"


def add_aca_kernelspec(
    home: str | Path, name: str, host: Host, *, api_version: str = DEFAULT_API_VERSION, **more: Any
) -> None:
    """Install a kernelspec of a host's pool in a Jupyter data directory; its token is in the environment."""
    endpoint = more.pop("endpoint", f"{host.info.url}exec/aca")
    add_pool_kernelspec(home, name, endpoint, api_version=api_version, **more)


def add_pool_kernelspec(home: str | Path, name: str, endpoint: str, **more: Any) -> None:
    """Install a kernelspec of any pool; nothing need answer there until something is asked of the session."""
    directory = Path(home, "kernels", name)
    directory.mkdir(parents=True)
    env = more.pop("spec_env", {})
    config = {"endpoint": endpoint, "credential": f"env:{VARIABLE}"}
    stanza = {"provisioner_name": "aca-provisioner", "config": {**config, **more}}
    spec = {
        "argv": [],
        "display_name": name,
        "language": "python",
        "interrupt_mode": "message",
        "env": env,
        "metadata": {"kernel_provisioner": stanza, "supported_encryption": "curve"},
    }
    (directory / "kernel.json").write_text(json.dumps(spec))


def add_plain_kernelspec(name: str) -> None:
    """Install a kernelspec of this machine's Python, as the pool's sessions are."""
    directory = Path(os.environ["JUPYTER_DATA_DIR"], "kernels", name)
    directory.mkdir(parents=True)
    argv = ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (directory / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))


@dataclass
class Ran:
    """What came of a cell."""

    reply: dict[str, Any]
    outputs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def text(self, name: str) -> str:
        return "".join(c["text"] for kind, c in self.outputs if kind == "stream" and c["name"] == name)


@dataclass
class Running:
    """A kernel and a client of it."""

    manager: AsyncKernelManager
    client: AsyncKernelClient

    async def run(self, code: str, **options: Any) -> Ran:
        ran = Ran({})

        def keep(message: dict[str, Any]) -> None:
            if message["msg_type"] not in ("status", "execute_input"):
                ran.outputs.append((message["msg_type"], message["content"]))

        reply = await self.client.execute_interactive(code, allow_stdin=False, output_hook=keep, timeout=60, **options)
        ran.reply = reply["content"]
        return ran

    @property
    def identifier(self) -> str:
        """The session's name on the service; empty before it begins."""
        provisioner: Any = self.manager.provisioner
        return str(provisioner._kernel.session.identifier)


@asynccontextmanager
async def running_kernel(name: str, **options: Any) -> AsyncIterator[Running]:
    """Start a kernel, and shut it down at the end."""
    manager = AsyncKernelManager(kernel_name=name)
    await manager.start_kernel(**options)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        yield Running(manager, client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
