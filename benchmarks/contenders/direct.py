"""The floor: a kernel driven by jupyter_client, with nothing in between; blocking, and its own asynchronous client."""

from __future__ import annotations

import base64
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import AsyncKernelManager, KernelManager

from .worker import serve

_SECONDS = 120.0


class Direct:
    """Sends a request and reads both channels until reply and idle have come."""

    def __init__(self) -> None:
        self._manager = KernelManager()
        self._manager.start_kernel()
        self._client: BlockingKernelClient = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_SECONDS)

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return "".join(content["text"] for kind, content in self._contents(code) if kind == "stream")

    def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows, decoded as a client has to."""
        shown = [content["data"]["image/png"] for kind, content in self._contents(code) if kind == "display_data"]
        return len(base64.b64decode(shown[0]))

    def _contents(self, code: str) -> list[tuple[str, Any]]:
        msg_id = self._client.execute(code)
        found: list[tuple[str, Any]] = []
        while True:
            message = self._client.get_iopub_msg(timeout=_SECONDS)
            if message["parent_header"].get("msg_id") == msg_id:
                if message["content"].get("execution_state") == "idle":
                    break
                found.append((message["msg_type"], message["content"]))
        while self._client.get_shell_msg(timeout=_SECONDS)["parent_header"].get("msg_id") != msg_id:
            pass
        return found

    def close(self) -> None:
        """Shut the kernel down."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


class AsyncDirect:
    """jupyter_client's asynchronous client, through the method that it has for this."""

    def __init__(self, manager: AsyncKernelManager, client: AsyncKernelClient) -> None:
        self._manager = manager
        self._client: Any = client
        self._found: list[tuple[str, Any]] = []

    @classmethod
    async def make(cls) -> AsyncDirect:
        """Start a kernel."""
        manager = AsyncKernelManager()
        await manager.start_kernel()
        client: Any = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=_SECONDS)
        return cls(manager, client)

    async def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return "".join(content["text"] for kind, content in await self._contents(code) if kind == "stream")

    async def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows."""
        shown = [content["data"]["image/png"] for kind, content in await self._contents(code) if kind == "display_data"]
        return len(base64.b64decode(shown[0]))

    async def _contents(self, code: str) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        await self._client.execute_interactive(
            code, output_hook=lambda message: found.append((message["msg_type"], message["content"])), timeout=_SECONDS
        )
        return found

    async def close(self) -> None:
        """Shut the kernel down."""
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    serve({"blocking": Direct, "async": AsyncDirect.make})
