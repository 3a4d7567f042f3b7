"""Embedded kernel: one kernel process of this process, started and ended by jupyter_client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir

from ..errors import ExecError, KernelStartFailed
from ..protocol.languages import normalize_language
from ..system.marked_processes import MARK, kill_left_behind, kill_marked
from ..system.resources import is_out_of_resources, make_program_resources_error

T = TypeVar("T")
_CALL_SECONDS = 60.0
_SHOWN_BYTES = 2000
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # what fails is raised, too


class SupportsClose(Protocol):
    """Object that can be closed, more than once."""

    def close(self) -> None:
        """Close it."""


def start_failure(error: Exception) -> ExecError:
    """Return the error for a kernel that could not be started or connected to, from the system's or ZeroMQ's."""
    if is_out_of_resources(error):
        return make_program_resources_error(error)
    return KernelStartFailed(f"the kernel could not be started: {error}")


@contextlib.contextmanager
def _start_failures() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # any: provisioners are other people's code
        raise start_failure(error) from error


class EmbeddedKernel:
    """A kernel process, from its start to its shutdown; restarts keep the id. May be used from several threads.

    Parameters
    ----------
    kernel_name : str
        An installed kernelspec.
    env : mapping
        The whole environment of the kernel.

    Attributes
    ----------
    generation : int
        Number of processes so far.
    connection : closeable or None
        The present connection to it; closed by `shutdown`.

    Raises
    ------
    KernelStartFailed, OutOfResources
    """

    def __init__(self, kernel_name: str, env: Mapping[str, str]) -> None:
        self.generation = 1
        self._pid = os.getpid()
        self.connection: SupportsClose | None = None
        # jupyter_client wants an event loop; one of our own works whatever loop the caller runs in.
        self._loop = asyncio.SelectorEventLoop()  # the kind that ZeroMQ works with, on Windows, too
        # A daemon: an executor that was not stopped must not keep the program from ending.
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded kernel", daemon=True)
        self._restarting = threading.Lock()
        self._mark = f"embedded_{uuid.uuid4().hex}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by shutdown
        self._ending: asyncio.Task[None] | None = None
        self._thread.start()
        runtime_dir = Path(jupyter_runtime_dir())
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._manager = AsyncKernelManager(
            kernel_name=kernel_name, connection_file=str(runtime_dir / f"kernel-{uuid.uuid4()}.json"), log=_log
        )
        with _start_failures(), contextlib.ExitStack() as undo:
            undo.callback(self.shutdown, now=True)
            self._call(
                self._manager.start_kernel(
                    env={**env, MARK: self._mark}, stdout=subprocess.DEVNULL, stderr=self._errors.fileno()
                )
            )
            undo.pop_all()

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        return str(self._manager.kernel_id)

    @property
    def is_python(self) -> bool:
        """True for a kernel that runs Python, or may do so: its kernelspec names no language."""
        spec = self._manager.kernel_spec
        return spec is not None and normalize_language(spec.language) in ("python", "")

    def connection_info(self) -> dict[str, Any]:
        """Return the addresses and the key, as in a connection file."""
        return dict(self._manager.get_connection_info())

    def _call(self, work: Awaitable[T]) -> T:
        # `run_coroutine_threadsafe` takes coroutines only, and jupyter_client's methods may return other awaitables.
        async def carry_out() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result(_CALL_SECONDS)

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return not self._loop.is_closed() and bool(self._call(self._manager.is_alive()))

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended, negative for a signal; None where it is not known."""
        process = getattr(self._manager.provisioner, "process", None)
        code = getattr(process, "returncode", None)
        return code if isinstance(code, int) else None

    @property
    def last_words(self) -> str:
        """The end of what a process that has ended wrote to its standard error, or its provisioner has kept of it."""
        kept = getattr(self._manager.provisioner, "last_words", None)
        if kept is not None and (words := str(kept())):
            return words
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _SHOWN_BYTES))
        return self._errors.read().decode("utf-8", "replace").strip()

    def interrupt(self) -> None:
        """Interrupt what runs, in the kernelspec's way; nothing where the process has ended."""
        if self.alive:
            self._call(self._manager.interrupt_kernel())

    def restart(self) -> None:
        """Start a fresh process; what the one before has left behind ends.

        Raises
        ------
        KernelStartFailed
        """
        with self._restarting:
            # First: connections to the old process are over even if the new one does not start.
            self.generation += 1
            with _start_failures():
                self._call(self._manager.restart_kernel(now=True))
            pid = getattr(self._manager.provisioner, "pid", None)
            if pid is not None:  # else the fresh process cannot be told from the others
                kill_left_behind(self._mark, pid)

    def revive(self) -> None:
        """Start a fresh process if there is none."""
        if not self.alive:
            self.restart()

    def shutdown(self, *, now: bool = False) -> None:
        """End the process and all that it has started; calling it again does nothing.

        Parameters
        ----------
        now : bool
            Without asking it to exit.
        """
        if self._pid != os.getpid():  # a forked process has copies of what is its parent's
            return
        with self._restarting:
            if self._loop.is_closed() or self._ending is not None:
                return
            if self.connection is not None:
                self.connection.close()
            if threading.current_thread() is self._thread:  # the garbage collector calls from anywhere
                self._ending = self._loop.create_task(self._end(now=True))
                self._ending.add_done_callback(lambda _: self._loop.stop())
                return
            try:
                self._call(self._end(now=now))
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._errors.close()

    async def _end(self, *, now: bool) -> None:
        if self._manager.has_kernel:
            await self._manager.shutdown_kernel(now=now)
        # The kernel has the mark, too: earlier, this would kill it before it could exit.
        kill_marked({self._mark})
        self._manager.cleanup_connection_file()  # which there is before the process: one that never started left it
