"""Output of code in a kernel, by jupyter_client alone."""

from __future__ import annotations

from typing import Any

from jupyter_client.manager import AsyncKernelManager


async def answer(manager: AsyncKernelManager, code: str) -> str:
    """Return what a kernel prints."""
    client = manager.client()
    client.start_channels()
    printed: list[str] = []
    try:
        await client.wait_for_ready(timeout=60)

        def take(message: dict[str, Any]) -> None:
            printed.append(message["content"].get("text", ""))

        await client.execute_interactive(code, output_hook=take, timeout=60)
    finally:
        client.stop_channels()
    return "".join(printed)
