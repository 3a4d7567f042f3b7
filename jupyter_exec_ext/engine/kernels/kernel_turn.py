"""Turn of a session on its kernel: one session at a time sends code to a kernel that several share."""

from __future__ import annotations

import asyncio

from .session_kernel import SessionKernel


class KernelTurn:
    """Turn of one session on its kernel; held while an execution runs."""

    def __init__(self, kernel: SessionKernel) -> None:
        self._kernel = kernel
        self._held: asyncio.Lock | None = None

    async def take(self) -> None:
        """Make sure of a kernel that has nothing else to do; `release` it afterwards.

        Code for a shared kernel waits here for its turn. In the kernel's own queue it could not be taken back, nor be
        told from its user's code by an interrupt.

        Raises
        ------
        TooManyKernels, KernelStartFailed, KernelStartTimeout
            See `SessionKernel.ensure`.
        KernelNotFound
            If it was shut down, with which the session ends, too.
        SessionEnded
            If the session ends meanwhile.
        """
        await self._kernel.ensure()
        assert self._kernel.kernel is not None
        lock = self._kernel.kernel.traits.turn
        if lock is not None:
            self._held = await self._kernel.unless_given_up(self._acquire(lock))

    async def _acquire(self, lock: asyncio.Lock) -> asyncio.Lock:
        await lock.acquire()
        try:
            while self._kernel.connection is None or not await self._kernel.connection.has_turn():
                await self._kernel.ensure()
        except BaseException:
            lock.release()
            raise
        return lock

    def release(self) -> None:
        """Let other sessions use the kernel."""
        if self._held is not None:
            self._held.release()
            self._held = None
