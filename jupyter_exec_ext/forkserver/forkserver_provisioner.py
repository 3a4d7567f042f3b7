"""Kernel provisioner that forks IPython kernels, for any Jupyter application, and the registry of fork parents.

There is one fork parent for each program. It is started on first use, and renewed when it is outdated.
"""

from __future__ import annotations

import concurrent.futures
import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import List, Unicode

from ..protocol.kernel_preparation import MAX_UNSENT_MESSAGES
from ..system.worker_threads import finished, in_thread
from .fork_parent import ForkParent, ThreadsError
from .forkable_command import NotForkableError, Program, parsed, program_of
from .forked_process import ForkedProcess
from .forking_process import ParentGoneError

# Each holds the memory of its imports.
_MAX_PARENTS = 8
# A program that could not become a parent is tried again after this time.
_PATIENCE_SECONDS = 30.0
_TRIES = 3


@dataclass(slots=True)
class _Entry:
    begun: float = field(default_factory=time.monotonic)
    parent: concurrent.futures.Future[ForkParent] = field(default_factory=concurrent.futures.Future)

    @property
    def is_usable(self) -> bool:
        if not self.parent.done():
            return True
        if self.parent.exception() is not None:
            return time.monotonic() - self.begun < _PATIENCE_SECONDS
        parent = self.parent.result()
        return not parent.is_gone and not parent.is_outdated


class ForkParents:
    """The fork parents of one process. What is called here blocks, and may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Program, _Entry] = OrderedDict()

    def fork(
        self, program: Program, descriptors: Sequence[int], log: logging.Logger | logging.LoggerAdapter[Any]
    ) -> ForkedProcess:
        """Fork a kernel from the parent for a program, which is started if there is none.

        Raises
        ------
        NotForkableError
        OSError
            If there can be no further process.
        """
        for _ in range(_TRIES):
            try:
                return self.parent(program, log).fork(descriptors)
            # The parent can end between the search in the table and the request.
            except ParentGoneError:
                continue
        raise NotForkableError("its parent has ended again and again")

    def parent(self, program: Program, log: logging.Logger | logging.LoggerAdapter[Any]) -> ForkParent:
        """Return the parent for a program; the first caller starts it, and the others wait for that.

        Raises
        ------
        NotForkableError
        """
        # Only the table is locked. A start takes seconds, and must not hold up kernels of other programs.
        with self._lock:
            entry = self._entries.get(program)
            outdated = None
            if entry is None or not entry.is_usable:
                outdated, entry = entry, _Entry()
                self._entries[program] = entry
                is_first = True
            else:
                is_first = False
            self._entries.move_to_end(program)
            surplus = [self._entries.popitem(last=False)[1] for _ in range(len(self._entries) - _MAX_PARENTS)]
        for old in (outdated, *surplus):
            if old is not None:
                old.parent.add_done_callback(_retire)  # it may still be starting
        if is_first:
            try:
                entry.parent.set_result(_started(program, log))
            except (NotForkableError, OSError) as error:
                entry.parent.set_exception(error)
            finally:
                if not entry.parent.done():  # others wait for this start, and would wait for ever
                    entry.parent.set_exception(NotForkableError("the start of its parent was broken off"))
        return entry.parent.result()


def _retire(parent: concurrent.futures.Future[ForkParent]) -> None:
    if parent.exception() is None:
        parent.result().retire()


def _started(program: Program, log: logging.Logger | logging.LoggerAdapter[Any]) -> ForkParent:
    while True:
        try:
            parent = ForkParent(program)
        except ThreadsError as error:
            if error.module not in program.preload:
                raise
            log.warning("kernels are forked without a module of `preload`: %s", error)
            # The table keeps the program as it was asked for, so the next kernel finds this parent.
            program = replace(program, preload=tuple(name for name in program.preload if name != error.module))
            continue
        for note in parent.notes:
            log.warning("kernels are forked from process %d, but %s", parent.pid, note)
        return parent


def fork_parents() -> ForkParents:
    """Return this process's own; one that was forked has not those of its parent."""
    return _of_process(os.getpid())


@cache
def _of_process(_: int) -> ForkParents:
    return ForkParents()


_READY_SECONDS = 30.0
# A session's kernel that waits for its readers sends this byte; see `prepared_kernel.py`.
_WAITS = b"w"
# The engine sets this variable for the kernels of its sessions.
_SESSION = "JUPYTER_EXEC_SESSION"
# Options of a launch that also apply to a forked kernel.
_KNOWN = frozenset({"env", "cwd", "stdin", "stdout", "stderr", "independent", "kernel_id", "extra_arguments"})


class ForkServerProvisioner(LocalProvisioner):
    """Forks IPython kernels from a process that has imported everything already; ``c.ForkServerProvisioner``.

    A kernelspec may set `preload` in its provisioner's ``config``. What cannot be forked is started as usual, with a
    warning in the log.
    """

    level = "none"
    #: Whether the kernel, a session's, was told to lose no output before it began.
    waits_for_readers = False

    preload = List(
        Unicode(),
        help="Modules that are imported once, before kernels are forked, such as numpy, pandas and matplotlib.pyplot. "
        "They must start no threads when they are imported; those that do are left out, with a warning.",
    ).tag(config=True)

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why kernels cannot be forked on this machine, None if they can."""
        if sys.platform == "win32" or not hasattr(os, "fork"):
            return "this system has no fork"
        return None

    def begin(self, command: list[str], env: Mapping[str, str]) -> None:
        """Have the parent for such kernels started, if it does not run; blocks.

        Raises
        ------
        NotForkableError
        """
        fork_parents().parent(program_of(parsed(command), self.preload, env), self.log)

    @property
    def exited(self) -> concurrent.futures.Future[int | None] | None:
        """How the kernel ends, when it has ended; None for one that was started as usual."""
        return self.process.exited if isinstance(self.process, ForkedProcess) else None

    # --- what a kernel manager calls ---

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Fork the kernel. When this returns its sockets are bound, but for one of a session: see `until_begun`."""
        try:
            process = await self._forked(cmd, kwargs)
        except NotForkableError as error:
            self.log.warning("kernel %s is not forked, but started as usual: %s", self.kernel_id, error)
            return await super().launch_kernel(cmd, **kwargs)
        self.process = process
        self.pid = self.pgid = process.pid  # it begins a session, and so a group, of its own
        self.cwd = Path(kwargs.get("cwd") or os.getcwd())
        return self.connection_info

    async def until_begun(self) -> None:
        """Wait until a session's kernel begins to answer, or has ended.

        Meanwhile Jupyter does its own work after a launch, which includes a sleep of 10 ms. Users of other kernels
        connect at once, and would wait for ZeroMQ to try again.
        """
        if isinstance(self.process, ForkedProcess):
            said = await in_thread(self.process.first_word, _READY_SECONDS)
            self.waits_for_readers = said == _WAITS

    async def wait(self) -> int | None:
        """Wait for the end of the kernel."""
        if not isinstance(self.process, ForkedProcess):
            return await super().wait()
        process = self.process
        await finished(process.exited)
        if self.process is process:  # a restart may have put another one there
            self.process = None
        return process.returncode

    # --- ---

    async def _forked(self, cmd: list[str], options: Mapping[str, Any]) -> ForkedProcess:
        why = self.unavailable()
        if why is not None:
            raise NotForkableError(why)
        unknown = sorted(set(options) - _KNOWN)
        if unknown:
            raise NotForkableError(f"a forked kernel cannot be told {', '.join(unknown)}")
        command = parsed(cmd)
        directory = str(options.get("cwd") or Path.cwd())
        # `Popen` raises this in the caller. A forked kernel could only end.
        if not await in_thread(os.path.isdir, directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        environment = dict(options.get("env") or os.environ)
        independent = bool(options.get("independent"))
        if not independent:
            # As jupyter_client's launcher does for kernels that are started.
            environment["JPY_PARENT_PID"] = str(os.getpid())
        of_session = _SESSION in environment
        told = {
            "max_unsent_messages": MAX_UNSENT_MESSAGES if of_session else 0,
            "connection_file": command.connection_file,
            "directory": directory,
            "environment": environment,
            "independent": independent,
        }
        fork = partial(fork_parents().fork, program_of(command, self.preload, environment))
        return await in_thread(self._launch, fork, told, options)

    def _launch(self, fork: Any, told: Mapping[str, Any], options: Mapping[str, Any]) -> ForkedProcess:
        """Fork a kernel, and tell it what it is to be."""
        with open(os.devnull, "r+b") as nothing:
            standard = [
                _descriptor(options.get(name), usual, nothing.fileno())
                for name, usual in (("stdin", nothing.fileno()), ("stdout", 1), ("stderr", 2))
            ]
            process: ForkedProcess = fork(standard, self.log)
        process.channel.settimeout(_READY_SECONDS)
        process.tell(json.dumps(told).encode() + b"\n")
        # A session waits later, in `until_begun`. Other clients connect as soon as the launch returns.
        if not told["max_unsent_messages"]:
            process.first_word(_READY_SECONDS)
        return process


def _descriptor(given: Any, usual: int, nothing: int) -> int:
    """Return the descriptor that a kernel gets for an argument of `subprocess.Popen`."""
    if given is None:
        return usual
    if given == subprocess.DEVNULL:
        return nothing
    number = given if isinstance(given, int) else given.fileno()
    if number < 0:
        raise NotForkableError("a forked kernel can have no pipe or other thing of Popen's for its output")
    return int(number)
