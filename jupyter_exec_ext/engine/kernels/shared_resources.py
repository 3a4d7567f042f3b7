"""Resources that the sessions of one engine share: sockets, memory for messages, worker threads, warnings."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zmq

from ...system.removal import remove_tree
from ..ports import ExecutionStore
from .backpressure import MessageMemory, Turns

_INTERVAL_SECONDS = 60.0
_MAX_KINDS = 64


class RepeatedWarnings:
    """Logs a warning once a minute at most for each kind of it, with the number of those in between.

    A kernel can send thousands of messages a second, each of which deserves a warning.

    Parameters
    ----------
    log : Logger
        Where the warnings go.
    interval_seconds : float
        How long warnings of a kind are counted after one was logged.
    """

    def __init__(
        self, log: logging.Logger | logging.LoggerAdapter[Any], interval_seconds: float = _INTERVAL_SECONDS
    ) -> None:
        self._log = log
        self._interval_seconds = interval_seconds
        self._counts: dict[str, int] = {}  # since the last warning of each kind
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def warn(self, kind: str, message: str, *args: object) -> None:
        """Log a warning, or count it.

        Parameters
        ----------
        kind : str
            What it is about, in words: they name it when its number is logged.
        message, *args
            As `logging.Logger.warning` takes them.
        """
        if kind not in self._timers and len(self._timers) >= _MAX_KINDS:
            kind = "other warnings about kernels"
        if kind in self._timers:
            self._counts[kind] += 1
            return
        self._log.warning(message, *args)
        self._count(kind)

    def log_defect(self, kind: str) -> None:
        """Log the exception that is being handled, with its traceback, or count it."""
        if kind in self._timers:
            self._counts[kind] += 1
        else:
            self._log.exception("a defect of the server: %s", kind)
            self._count(kind)

    def _count(self, kind: str) -> None:
        self._counts[kind] = 0
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(self._interval_seconds, self._report, kind)

    def _report(self, kind: str) -> None:
        count = self._counts.pop(kind)
        del self._timers[kind]
        if count:
            self._log.warning("%s: %d more in the last %g s", kind, count, self._interval_seconds)
            self._count(kind)

    def close(self) -> None:
        """Log what was counted, and count no more."""
        for timer in self._timers.values():
            timer.cancel()
        for kind, count in self._counts.items():
            if count:
                self._log.warning("%s: %d more", kind, count)
        self._counts.clear()
        self._timers.clear()


DEFAULT_MAX_MESSAGE_BYTES = 128 * 1024 * 1024
DEFAULT_MAX_ALL_MESSAGES_BYTES = 512 * 1024 * 1024
_LOG = logging.getLogger(__name__)
# Large messages are checked and parsed there. The work is bound by the interpreter lock, so more would not be faster.
_WORKERS = 2


class EngineResources:
    """A ZeroMQ context, worker threads and a private directory, each made when first used.

    Parameters
    ----------
    max_value_bytes : int
        A value in a kernel's message that is larger is left in the message: no execution's cap would let it pass.
    log : Logger, optional
        Gets warnings about what kernels send.
    max_message_bytes, max_all_messages_bytes : int
        How much the messages of one kernel, and of all together, may take in memory.
    executions : ExecutionStore, optional
        Holds back the reading of kernels while much of their output waits to be written.
    """

    def __init__(
        self,
        max_value_bytes: int,
        executions: ExecutionStore | None = None,
        *,
        log: logging.Logger | logging.LoggerAdapter[Any] = _LOG,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        max_all_messages_bytes: int = DEFAULT_MAX_ALL_MESSAGES_BYTES,
    ) -> None:
        self.max_value_bytes = max_value_bytes
        self.message_memory = MessageMemory(max_message_bytes, max_all_messages_bytes)
        self.warnings = RepeatedWarnings(log)
        self._executions = executions
        self.turns = Turns()
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 65_536)  # the default of 1,023 is enough for 255 kernels
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="jupyter-exec-messages")
        self._directory: Path | None = None

    async def until_few_wait(self) -> None:
        """Wait until little of what was read waits to be written."""
        if self._executions is None:
            return
        # The callback comes even if the reader was cancelled meanwhile, and its future with it.
        few: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._executions.when_few_wait(lambda: None if few.done() else few.set_result(None))
        await few

    def private_directory(self) -> Path:
        """Return a directory that only our user can enter; its name cannot be guessed."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jupyter-exec-"))
        return self._directory

    def close(self) -> None:
        """Close everything; messages that are still being parsed are dropped."""
        self.turns.close()
        self.warnings.close()
        self.context.destroy(linger=0)
        # A message of 128 MiB may be in work. The server's end does not wait for it.
        self.workers.shutdown(wait=False, cancel_futures=True)
        if self._directory is not None:
            remove_tree(self._directory, move_aside=False)
