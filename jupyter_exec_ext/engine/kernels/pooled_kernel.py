"""`PooledKernel`: one kernel of the warm pool that no session has yet."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from typing import Protocol

from ...errors import KernelStartFailed, KernelStartTimeout
from ...protocol.kernel_messages import KernelMessage
from ..ports import KernelExit
from .pool_plan import KernelKind
from .session_kernel import SessionKernel


def new_session_id() -> str:
    """Return an id for a session that is yet to come."""
    return f"ses_{secrets.token_hex(12)}"


class SpoiledKernels(Protocol):
    """Pool that ends kernels which no session may have."""

    def note_spoiled(self, pooled: PooledKernel, reason: str) -> None:
        """End a kernel."""


class PooledKernel:
    """A kernel that no session has yet.

    Attributes
    ----------
    ready : bool
        Whether a session may have it.
    """

    def __init__(self, kind: KernelKind, pool: SpoiledKernels) -> None:
        self.kind = kind
        # Both are written down before there is anything that goes by them.
        self.session_id, self.kernel_id = new_session_id(), str(uuid.uuid4())
        self.ready = False
        self.kernel: SessionKernel | None = None
        self._pool: SpoiledKernels | None = pool
        self._seen: set[tuple[str, str]] = set()
        self._is_settled = asyncio.Event()

    def on_message(self, message: KernelMessage) -> None:
        """Note which set-up requests are done; any other request spoils the kernel."""
        assert self.kernel is not None
        parent = message.parent_id
        if not parent:  # no answer to a request, such as output at its start
            return
        if parent not in self.kernel.setups:
            self.discard("another client has used it")
            return
        if message.msg_type == "execute_reply":
            self._seen.add((parent, "reply"))
        elif message.msg_type == "status" and message.content.get("execution_state") == "idle":
            self._seen.add((parent, "idle"))
        self._note_progress()

    def _note_progress(self) -> None:
        assert self.kernel is not None
        if self._seen.issuperset((parent, what) for parent in self.kernel.setups for what in ("reply", "idle")):
            self._is_settled.set()

    async def set_up(self, timeout_seconds: float) -> None:
        """Wait until the kernel has run what is ours to the end.

        Raises
        ------
        KernelStartTimeout
        KernelStartFailed
            If it is the pool's no more.
        """
        self._note_progress()
        try:
            await asyncio.wait_for(self._is_settled.wait(), timeout_seconds)
        except asyncio.TimeoutError:
            raise KernelStartTimeout("the kernel does not come to the end of its set-up") from None
        if self._pool is None:
            raise KernelStartFailed("the kernel was thrown away during its set-up")

    def on_too_large(self, reason: str) -> None:
        """Spoil the kernel."""
        self.discard(reason)

    def on_exit(self, exit_: KernelExit) -> None:
        """Spoil the kernel."""
        self.discard(f"it {exit_}")

    async def on_connected(self, kernel_id: str, starts: int) -> None:
        """Do nothing: there is no record of a session yet."""

    async def on_removed(self) -> None:
        """Spoil the kernel."""
        self.discard("it was shut down")

    def discard(self, reason: str) -> None:
        """Say that no session may have it."""
        if self._pool is not None:
            self._pool.note_spoiled(self, reason)

    def detach(self) -> None:
        """Be the pool's no more."""
        self.ready = False
        self._pool = None
        self._is_settled.set()
