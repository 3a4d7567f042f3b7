"""Server's end of a fork parent: starts one for a program, asks it for kernels, and tells when it is outdated."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from ..protocol.kernel_preparation import BOUNDED_OUTPUT, DEFAULTS
from .fork_parent_program import ROOM
from .forkable_command import NotForkableError, Program
from .forking_process import ForkingProcess

_START_SECONDS = 120.0
# Beyond what the parent's own environment takes: for the variables that only kernels have.
_ROOM_BYTES = 4096
# The parent imports the debugger, which warns of frozen modules on standard error. Kernels do not inherit the variable:
# each gets the environment that its start request names.
_QUIET_DEBUGGER = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}


class ThreadsError(NotForkableError):
    """A module starts threads when it is imported, which would not outlive a fork.

    Parameters
    ----------
    module : str
    """

    def __init__(self, module: str) -> None:
        super().__init__(f"{module} starts threads when it is imported, which would not outlive a fork")
        self.module = module


class ForkParent(ForkingProcess):
    """A running fork parent. To make one takes as long as its imports do.

    Raises
    ------
    NotForkableError
        If it could not become one.
    """

    def __init__(self, program: Program) -> None:
        ours, theirs = socket.socketpair()
        with ExitStack() as undo:
            undo.callback(ours.close)
            # Our copy is closed, so that our socket ends when the parent's does.
            with theirs:
                self._process = self._start(program, theirs)
            undo.callback(self._process.wait)  # after the kill: the callbacks run in reverse
            undo.callback(self._process.kill)
            lines = undo.enter_context(ours.makefile("rb"))
            said = self._first_report(ours, lines)
            undo.pop_all()
        self._stamps: dict[str, int] = said["stamps"]
        #: Notes on its start, for the log.
        self.notes: list[str] = said["notes"]
        super().__init__(ours, lines)

    @staticmethod
    def _start(program: Program, theirs: socket.socket) -> subprocess.Popen[bytes]:
        files = {"bounded_output": str(BOUNDED_OUTPUT), "defaults": str(DEFAULTS)}
        orders = {"arguments": program.arguments, "preload": program.preload, **files}
        file = str(Path(__file__).with_name("fork_parent_program.py"))
        try:
            return subprocess.Popen(
                [program.python, *program.options, file, str(theirs.fileno()), json.dumps(orders)],
                stdin=subprocess.DEVNULL,
                env={**_QUIET_DEBUGGER, **dict(program.environment), ROOM: "x" * _ROOM_BYTES},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise NotForkableError(f"{program.python} cannot be started: {error}") from error

    @staticmethod
    def _first_report(ours: socket.socket, lines: IO[bytes]) -> dict[str, Any]:
        ours.settimeout(_START_SECONDS)
        try:
            line = lines.readline()
        except TimeoutError:
            raise NotForkableError(f"its parent is not ready after {_START_SECONDS:g} s") from None
        ours.settimeout(None)
        if not line:
            raise NotForkableError("its parent has ended before it was ready; see what it has printed")
        said: dict[str, Any] = json.loads(line)
        if "module" in said:
            raise ThreadsError(said["module"])
        if "problem" in said:
            raise NotForkableError(f"its parent could not import what it needs: {said['problem']}")
        return said

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _kill(self) -> None:
        self._process.kill()

    def _wait(self) -> None:
        self._process.wait()

    @property
    def is_outdated(self) -> bool:
        """True if what it has imported has changed since: packages were installed, or the configuration is another."""
        return any(_changed_at(path) != stamp for path, stamp in self._stamps.items())


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
