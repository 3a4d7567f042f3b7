"""What the sessions of one engine share, and its shutdown closes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zmq

from ..removal import remove_tree
from .turns import Turns

# Large messages are checked and parsed there. The work is bound by the interpreter lock, so more would not be faster.
_WORKERS = 2


class EngineResources:
    """A ZeroMQ context, worker threads and a private directory, each made when first used.

    Parameters
    ----------
    max_value_bytes : int
        A value in a kernel's message that is larger is left in the message: no execution's cap would let it pass.
    when_few_wait : callable, optional
        Calls what it is given now or, if much of what was read waits to be written, when there is less.
    """

    def __init__(
        self,
        max_value_bytes: int,
        when_few_wait: Callable[[Callable[[], None]], None] = lambda callback: callback(),
    ) -> None:
        self.max_value_bytes = max_value_bytes
        self.when_few_wait = when_few_wait
        self.turns = Turns()
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 65_536)  # room for many sessions; the default ends at 255
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="jupyter-exec-messages")
        self._directory: Path | None = None

    def private_directory(self) -> Path:
        """Return a directory that only our user can enter; its name cannot be guessed."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jupyter-exec-"))
        return self._directory

    def close(self) -> None:
        """Close everything; what is still being parsed is of no use to anybody."""
        self.turns.close()
        self.context.destroy(linger=0)
        self.workers.shutdown(wait=False, cancel_futures=True)
        if self._directory is not None:
            remove_tree(self._directory, move_aside=False)
