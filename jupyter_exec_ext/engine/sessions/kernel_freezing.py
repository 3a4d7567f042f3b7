"""Freezing of a session's idle kernel: loads the program in it, asks it for a checkpoint, and accepts the process."""

from __future__ import annotations

import secrets
from contextlib import ExitStack

from ...errors import CheckpointFailed, CheckpointHindered, CheckpointUnsupported, Conflict, Unavailable
from ...forkserver.frozen_kernel import FrozenKernel, FrozenKernelListener
from ...models import Hindrance
from ...protocol.kernel_checkpoint_messages import (
    abandoning_request,
    forgetting_request,
    hindrances_of,
    loading_request,
    require_loaded,
    taking_request,
)
from ...system.worker_threads import in_thread
from .live_session import LiveSession

# The kernel is idle, so it answers at once, unless a handler of a widget runs.
_ANSWER_SECONDS = 10.0
_FROZEN_SECONDS = 2.0


class KernelFreezer:
    """Freezes the kernels of one session.

    Parameters
    ----------
    live : LiveSession
        The session.
    """

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self._loaded_in = 0  # the kernel, by its number, that has our program

    async def freeze(self, *, force: bool) -> tuple[FrozenKernel, tuple[Hindrance, ...]]:
        """Make a frozen process of the session's kernel. The caller holds the kernel's lock.

        Parameters
        ----------
        force : bool
            Make it even if something cannot be taken along.

        Returns
        -------
        (FrozenKernel, tuple of Hindrance)
            The process, and what it does not have.

        Raises
        ------
        Conflict, CheckpointUnsupported, CheckpointHindered, CheckpointFailed
            See `SessionCheckpoints.make`.
        """
        kernel = self._live.kernel.kernel
        self._live.runner.require_idle()
        if kernel is None or self._live.kernel.connection is None:
            raise Conflict("the session's kernel has ended; the next execution starts a new one")
        support = kernel.traits.checkpoints
        if support is None or self._live.record.attached:
            raise CheckpointUnsupported(self._why_unsupported())
        try:
            support.path.unlink(missing_ok=True)
            listener = FrozenKernelListener(support.path)
        except OSError as error:
            raise CheckpointUnsupported(f"there can be no socket for checkpoints of its kernel: {error}") from error
        with ExitStack() as undo:
            undo.callback(listener.close)
            await self._load()
            nonce = secrets.token_hex(8)
            loaded_in, self._loaded_in = self._loaded_in, 0  # after an error the program is loaded anew
            request = taking_request(support.address, nonce, force=force, placeholder_signal=support.placeholder_signal)
            lost = hindrances_of(await self._ask(request))
            self._loaded_in = loaded_in
            if lost and not force:
                raise CheckpointHindered(
                    f"the checkpoint cannot have all of the session: {'; '.join(map(str, lost))}. Stop or close these, "
                    "or make it without them by 'force'"
                )
            return await self._accept(listener, nonce), lost

    def _why_unsupported(self) -> str:
        if self._live.record.attached:
            return "the kernel is its user's, and there are checkpoints of a session's own kernel only"
        isolation = self._live.record.isolation
        if isolation != "none":
            return f"there are no checkpoints of kernels with the isolation {isolation!r}"
        return "there are checkpoints only of IPython kernels that the server starts itself, on Linux"

    async def _load(self) -> None:
        starts = self._live.kernel.starts
        if self._loaded_in != starts:
            require_loaded(await self._ask(loading_request()))
            self._loaded_in = starts

    def note_restored(self) -> None:
        """Note that the present kernel comes of a checkpoint: it has the program already."""
        self._loaded_in = self._live.kernel.starts

    async def _ask(self, content: dict[str, object]) -> dict[str, object]:
        try:
            return dict(await self._live.requests.ask("execute_request", content, _ANSWER_SECONDS))
        except Unavailable:
            raise CheckpointFailed(
                f"the kernel did not answer within {_ANSWER_SECONDS:g} s; something runs in it, such as a widget's code"
            ) from None

    async def _accept(self, listener: FrozenKernelListener, nonce: str) -> FrozenKernel:
        try:
            return await in_thread(listener.accept, nonce, _FROZEN_SECONDS, self._live.kernel.pid)
        except (TimeoutError, ConnectionError):
            self._tell(abandoning_request())
            raise CheckpointFailed(
                f"the checkpoint's process did not answer within {_FROZEN_SECONDS:g} s and is killed; a lock that a "
                "thread held may be the cause. Stop the session's threads, and try again"
            ) from None

    def forget(self) -> None:
        """Tell the kernel that there are no checkpoints any more."""
        if self._loaded_in == self._live.kernel.starts:
            self._tell(forgetting_request())

    def _tell(self, content: dict[str, object]) -> None:
        connection = self._live.kernel.connection
        if connection is not None:
            connection.send("shell", "execute_request", content)
