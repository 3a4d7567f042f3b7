"""A kernel that Landlock holds, and the keeper that ends with it and takes along all it has started (``enter.py``)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..common import seccomp
from ..common.cgroup import ControlGroup
from ..common.launch_request import Limits

_HERE = Path(__file__).parent
_SETUP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Orders:
    """What to run, and what is left to it.

    Parameters
    ----------
    program : str
        The path of what is executed.
    environment : mapping of str to str
        All of it.
    rules : sequence of (str, str)
        Paths, and which of the rights of ``ruleset.py`` there are for each.
    filter : Path
        The system calls that are allowed.
    """

    program: str
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    rules: Sequence[tuple[str, str]]
    limits: Mapping[str, int | None]
    filter: Path

    def to_json(self) -> str:
        """Return what the launcher reads: a line."""
        plain = {
            **asdict(self),
            "filter": str(self.filter),
            "landlock": str(_HERE / "ruleset.py"),
            "seccomp": seccomp.__file__,
            "server": os.getpid(),
        }
        return json.dumps(plain) + "\n"


def limits_of_each(limits: Limits) -> dict[str, int | None]:
    """Return the limits of each process; how many there may be is counted for the whole user, and so is none."""
    return {
        "memory_bytes": limits.memory_bytes,
        "cpu_seconds": limits.cpu_seconds,
        "open_files": limits.open_files,
        "file_bytes": limits.file_bytes,
        "core_bytes": 0,
    }


NO_LIMITS: Mapping[str, int | None] = dict.fromkeys(
    ("memory_bytes", "cpu_seconds", "open_files", "file_bytes", "core_bytes")
)


class NotStartedError(Exception):
    """A kernel was not started.

    Parameters
    ----------
    report : mapping or None
        What the launcher said: ``step``, ``errno`` and ``message``; None if it said nothing.
    """

    def __init__(self, report: Mapping[str, Any] | None) -> None:
        super().__init__(report)
        self.report = report


class LandlockProcess(subprocess.Popen[bytes]):
    """A keeper and its kernel. To be made in a thread that lives as long as the server: with it both end.

    Parameters
    ----------
    environment : mapping of str to str
        The keeper's own.
    group : ControlGroup or None
        Where the kernel is put before it begins.
    output : int
        Where both write.

    Raises
    ------
    NotStartedError
    """

    _held: ClassVar[set[LandlockProcess]] = set()

    def __init__(
        self, orders: Orders, *, environment: Mapping[str, str], group: ControlGroup | None, output: int
    ) -> None:
        self.kernel_pid: int | None = None
        self._kernel: int | None = None
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    super().__init__(
                        [sys.executable, "-I", "-S", str(_HERE / "enter.py"), str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        env=dict(environment),
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                        cwd="/",
                    )
                ours.settimeout(_SETUP_SECONDS)
                self._converse(ours, orders, group)
            except BaseException:
                ours.close()
                if hasattr(self, "returncode"):  # it was started
                    self._give_up()
                self.close()
                raise
        # Kept until it is closed: the garbage collector calls `__del__` even of what is then given to somebody to end.
        self._held.add(self)

    def _give_up(self) -> None:
        """End what has not begun."""
        if self._kernel is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._kernel, signal.SIGKILL)
        super().kill()
        self.wait()

    def _converse(self, ours: socket.socket, orders: Orders, group: ControlGroup | None) -> None:
        """Say what to do, and return when the kernel itself has begun."""
        with ours.makefile("rb") as said:
            try:
                ours.sendall(orders.to_json().encode())
                report = _report(said.readline())
                if report is not None and "kernel" in report:
                    self._hold(report["kernel"], group)
                    ours.sendall(b"go\n")
                    # What comes after "ready" is the error of a program that could not be executed.
                    report = {}
                    for line in said:
                        report = _report(line) or {}
            except (TimeoutError, ConnectionError):
                report = None
        if report is None or "ready" not in report:
            raise NotStartedError(report or None)

    def _hold(self, kernel_pid: int, group: ControlGroup | None) -> None:
        self.kernel_pid = kernel_pid
        self._kernel = os.pidfd_open(kernel_pid)
        if group is not None:
            group.add(kernel_pid)

    def kill(self) -> None:
        """End the kernel and everything it has started."""
        if self._kernel is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._kernel, signal.SIGKILL)
        self.send_signal(signal.SIGTERM)  # then the keeper ends what is left, and itself

    def send_to_kernel(self, signum: int) -> None:
        """Send a signal to the kernel and what it has started in its session."""
        if self.kernel_pid is not None and self.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.kernel_pid, signum)

    def close(self) -> None:
        """Let go of what is held; for a kernel that has ended."""
        if self._kernel is not None:
            os.close(self._kernel)
        self._kernel = None
        self._held.discard(self)

    def __del__(self, **kwargs: Any) -> None:
        """Close what is held; `Popen` warns if the process has not ended."""
        self.close()
        super().__del__(**kwargs)


def _report(line: bytes) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(line) if line else None
    return found
