"""Attached kernel: one that another client uses, such as a notebook, which alone restarts and ends it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from jupyter_client.multikernelmanager import MultiKernelManager

from ...errors import KernelNotFound, KernelStartFailed
from ...models import KernelSpecInfo
from ..ports import KernelLaunch, KernelTraits
from .hosted_kernel import HostedKernel
from .kernel_use_marks import KernelUseMarks
from .provisioners import spec_info


class AttachedKernel(HostedKernel):
    """A running kernel of the host's that is shared with its user: what only an owner may do is left undone.

    Parameters
    ----------
    turn : asyncio.Lock
        Shared by our sessions on this kernel, so that one at a time sends it code.
    """

    def __init__(self, manager: MultiKernelManager, kernel_id: str, uses: KernelUseMarks, turn: asyncio.Lock) -> None:
        super().__init__(manager, kernel_id, uses)
        self._user = self  # one of several, perhaps
        self._turn = turn

    @property
    def traits(self) -> KernelTraits:
        """Its fixed properties."""
        return replace(super().traits, turn=self._turn)  # a kernel with a turn counts as shared

    @property
    def spec(self) -> KernelSpecInfo:
        """Its kernelspec, which may be none that sessions are started with."""
        spec = self._km.kernel_spec
        assert spec is not None
        return spec_info(self._km.kernel_name, spec)

    async def kill(self) -> None:
        """Let it live."""

    async def restart(self, *, now: bool, launch: KernelLaunch | None = None) -> None:
        """Wait until the host has restarted it, as it does with kernels that die.

        Raises
        ------
        KernelNotFound, KernelStartFailed
        """
        await self.settled()
        if not self.present:
            raise KernelNotFound("the kernel was shut down outside the session")
        if not await self.alive():
            raise KernelStartFailed("the kernel has ended and its host did not restart it; restart it in the notebook")

    async def shutdown(self, *, now: bool) -> None:
        """Let it live, without the session."""
        self._uses.end(self._kernel_id, self._user)

    def note_activity(self, state: str = "") -> None:
        """Do nothing: the host sees what is in use."""

    def take_over_sockets(self) -> None:
        """Let the host go on watching."""

    def _mark(self, state: str) -> None:
        """Do nothing: the host sees for itself what state it is in."""
