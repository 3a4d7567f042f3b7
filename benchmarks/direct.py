"""The floor: a kernel driven by jupyter_client's blocking client, with nothing in between."""

from __future__ import annotations

import time

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel


class DirectLoop:
    """Sends a request and reads both channels until reply and idle have come."""

    def __init__(self) -> None:
        self._manager: KernelManager
        self._client: BlockingKernelClient
        self._manager, self._client = start_new_kernel()
        self.run("0")

    def run(self, code: str) -> float:
        """Run code and return the seconds it took."""
        began = time.perf_counter()
        msg_id = self._client.execute(code)
        while True:
            message = self._client.get_iopub_msg(timeout=30)
            ours = message["parent_header"].get("msg_id") == msg_id and message["msg_type"] == "status"
            if ours and message["content"]["execution_state"] == "idle":
                break
        while self._client.get_shell_msg(timeout=30)["parent_header"].get("msg_id") != msg_id:
            pass
        return time.perf_counter() - began

    def close(self) -> None:
        """Shut the kernel down."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
