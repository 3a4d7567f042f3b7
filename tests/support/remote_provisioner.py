"""A provisioner whose kernel counts as one of another machine: no process, files or exit code of it are known here.

Its kernel runs here, behind TCP proxies that a test can cut. Its answers are those of gateway_provisioners: None if the
kernel lives and can be reached, else 0. The proxies are told what to do by a file, `CONTROL`:
``refuse`` closes their ports, ``stall`` lets connections be accepted and passes nothing on.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.launcher import launch_kernel
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

CONTROL = "EXEC_TEST_NETWORK"
_PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
_LOOK_SECONDS = 0.02


class Proxy:
    """Passes connections of one port on, unless the network is cut. A cut connection goes on when it is whole again."""

    def __init__(self, listening: socket.socket, port: int, network: Path) -> None:
        self.port: int = listening.getsockname()[1]
        self._listening: socket.socket | None = listening
        self._kernel_port, self._network = port, network
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._go(self._serve())

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._close()

    def _go(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _state(self) -> str:
        return self._network.read_text() if self._network.exists() else ""

    async def _serve(self) -> None:
        while True:
            if self._state() == "refuse":
                self._close()
            elif self._listening is None:
                self._listening = listen(self.port)
            if self._listening is not None:
                with suppress(BlockingIOError):
                    self._go(self._pass_on(self._listening.accept()[0]))
                    continue
            await asyncio.sleep(_LOOK_SECONDS)

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def _pass_on(self, theirs: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        await self._until_whole()
        try:
            kernel_reader, kernel_writer = await asyncio.open_connection("127.0.0.1", self._kernel_port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._copy(reader, kernel_writer), self._copy(kernel_reader, writer))
        except OSError:
            pass
        finally:
            writer.close()
            kernel_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._until_whole()
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _until_whole(self) -> None:
        while self._state():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)


def free_port() -> int:
    """Return a port that the kernel can take."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listen(port: int = 0) -> socket.socket:
    """Return a socket that listens on this machine."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    listening.setblocking(False)
    return listening


class ElsewhereProvisioner(KernelProvisionerBase):
    """Starts kernels as if on another machine."""

    child: subprocess.Popen[bytes] | None = None
    proxies: tuple[Proxy, ...] = ()

    @property
    def has_process(self) -> bool:
        return self.child is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        manager: Any = self.parent
        await self.cleanup()
        inside = {name: free_port() for name in _PORTS}
        proxies = {name: Proxy(listen(), port, Path(os.environ[CONTROL])) for name, port in inside.items()}
        self.proxies = tuple(proxies.values())
        for name, proxy in proxies.items():
            setattr(manager, name, proxy.port)
        info = manager.get_connection_info()
        file = Path(os.environ[CONTROL]).with_name(f"inside-{os.urandom(4).hex()}.json")
        file.write_text(json.dumps({**info, **inside, "key": info["key"].decode()}))
        kwargs["cmd"] = [argument.format(connection_file=file) for argument in manager.kernel_spec.argv]
        self.connection_info = info
        return await super().pre_launch(**kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        kwargs.pop("cwd", None)
        env = kwargs.pop("env")
        self.child = launch_kernel(cmd, env=env, cwd=env["HOME"], independent=True)
        for proxy in self.proxies:
            proxy.start()
        return self.connection_info

    async def poll(self) -> int | None:
        is_cut = Path(os.environ[CONTROL]).read_text() != ""
        return 0 if is_cut or self.child is None or self.child.poll() is not None else None

    async def wait(self) -> int | None:
        if self.child is not None:
            await asyncio.to_thread(self.child.wait)
            self.child = None
        return 0

    async def send_signal(self, signum: int) -> None:
        if self.child is not None:
            self.child.send_signal(signum)

    async def kill(self, restart: bool = False) -> None:
        await self.send_signal(9)

    async def terminate(self, restart: bool = False) -> None:
        await self.send_signal(15)

    async def cleanup(self, restart: bool = False) -> None:
        for proxy in self.proxies:
            proxy.stop()
