"""Processes of a kernel under Landlock, and the requirements of this isolation on the machine.

The keeper outside runs ``enter.py``, and the kernel is below it. The keeper ends with the kernel or the server, and
ends everything that the kernel has started.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..common import seccomp
from ..common.cgroup import ControlGroup
from ..common.isolated_process import IsolatedProcess
from ..common.isolation_support import IsolationUnavailableError, needed_filter
from ..common.leftovers import MARK, end_started_with
from . import ruleset

_HERE = Path(__file__).parent
_SETUP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Orders:
    """Instructions for the launcher: what to run, under which restrictions.

    Parameters
    ----------
    program : str
        Path of the program.
    command : sequence of str
        Its arguments, with its name first.
    environment : mapping of str to str
        Its whole environment.
    directory : str
        Its working directory.
    rules : sequence of (str, str)
        Paths, and the right (of ``ruleset.py``) on each.
    limits : mapping
        Resource limits from `cap_limits`, soft and hard.
    filter : Path
        File with the filter of system calls.
    """

    program: str
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    rules: Sequence[tuple[str, str]]
    limits: Mapping[str, tuple[int, int]]
    filter: Path

    def to_json(self) -> str:
        """Return the line that the launcher reads."""
        plain = {
            **asdict(self),
            "filter": str(self.filter),
            "landlock": str(_HERE / "ruleset.py"),
            "seccomp": seccomp.__file__,
            "server": os.getpid(),
        }
        return json.dumps(plain) + "\n"


class NotStartedError(Exception):
    """The launcher did not start a kernel.

    Parameters
    ----------
    report : mapping or None
        The launcher's report: ``step``, ``errno`` and ``message``; None if it sent none.
    """

    def __init__(self, report: Mapping[str, Any] | None) -> None:
        super().__init__(report)
        self.report = report


class LandlockProcess(IsolatedProcess):
    """A keeper and its kernel.

    Parameters
    ----------
    orders : Orders
        Instructions for the launcher.
    environment : mapping of str to str
        Environment of the keeper.
    group : ControlGroup or None
        Control group for the kernel, which it enters before it starts.
    output : int
        Descriptor for the output of both.

    Raises
    ------
    NotStartedError
        If the launcher failed; its report has the step.
    """

    def __init__(
        self, orders: Orders, *, environment: Mapping[str, str], group: ControlGroup | None, output: int
    ) -> None:
        self._kernel_pid: int | None = None
        self._kernel: int | None = None
        self._mark = orders.environment.get(MARK)
        ours, theirs = socket.socketpair()
        with ExitStack() as undo, ours:
            undo.callback(self._abandon)
            # Closes the server's copy after the start. With it open, the reports would have no end.
            with theirs:
                super().__init__(
                    # No file in a working directory or a user's site-packages can replace a module.
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
            self._give_orders(ours, orders, group)
            undo.pop_all()
        self._open.add(self)

    def _abandon(self) -> None:
        """End the processes of a kernel that could not be started."""
        if self._kernel is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._kernel, signal.SIGKILL)
        if getattr(self, "pid", None) is not None:  # `Popen` has started the keeper
            self._kill_itself()
        self._release()

    def _give_orders(self, ours: socket.socket, orders: Orders, group: ControlGroup | None) -> None:
        """Send the orders, and return when the kernel itself has started."""
        with ours.makefile("rb") as reports:
            try:
                ours.sendall(orders.to_json().encode())
                report = _report(reports.readline())
                if report is not None and "kernel" in report:
                    self._hold(report["kernel"], group)
                    ours.sendall(b"go\n")
                    # A report after "ready" is the error of a program that could not be executed.
                    report = {}
                    for line in reports:
                        report = _report(line) or {}
            except (TimeoutError, ConnectionError):
                report = None
        if report is None or "ready" not in report:
            raise NotStartedError(report or None)

    def _hold(self, kernel_pid: int, group: ControlGroup | None) -> None:
        self._kernel_pid = kernel_pid
        self._kernel = os.pidfd_open(kernel_pid)
        if group is not None:
            group.add(kernel_pid)

    @property
    def kernel_pid(self) -> int | None:
        """Process id of the kernel."""
        return self._kernel_pid

    def kill(self) -> None:
        """Kill the kernel; the keeper then ends everything that it has started, and itself."""
        if self._kernel is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._kernel, signal.SIGKILL)
        self.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End all that a killed keeper may have left, and release the descriptors."""
        # The keeper exits as the kernel did, so any other status than 0 may also be that of a killed keeper.
        if self.returncode != 0 and self._mark is not None:
            end_started_with(f"{MARK}={self._mark}")
        super().close()

    def _release(self) -> None:
        if self._kernel is not None:
            os.close(self._kernel)
        self._kernel = None
        super()._release()


def _report(line: bytes) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(line) if line else None
    return found


_TRIAL_SECONDS = 20.0
_ELSEWHERE = "or use the level 'sandbox', or a remote kernel"


def ready_filter() -> Path:
    """Return the filter of system calls, after one trial of the isolation in this process.

    Raises
    ------
    IsolationUnavailableError
        If a requirement is missing, or the trial fails.
    """
    allowed_calls = needed_filter("landlock")
    try:
        abi = ruleset.abi()
    except OSError as error:
        raise IsolationUnavailableError(
            "no_landlock",
            f"this system has no Landlock ({os.strerror(error.errno or 0)}); use Linux 6.12 or later with "
            f"CONFIG_SECURITY_LANDLOCK and 'landlock' among its security modules (lsm=), and a container that allows "
            f"its system calls, {_ELSEWHERE}",
        ) from None
    if abi < ruleset.MIN_ABI:
        raise IsolationUnavailableError(
            "old_landlock",
            f"this system has version {abi} of Landlock, which leaves signals and sockets of other processes open; "
            f"version {ruleset.MIN_ABI} is needed: use Linux 6.12 or later, {_ELSEWHERE}",
        )
    _try(allowed_calls)
    return allowed_calls


@cache  # exceptions are not cached, so a failed trial is repeated
def _try(allowed_calls: Path) -> None:
    orders = Orders(
        program=sys.executable,
        command=[sys.executable, "-V"],
        environment={},
        directory="/",
        rules=[("/", "read")],
        limits={},
        filter=allowed_calls,
    )
    try:
        process = LandlockProcess(orders, environment={}, group=None, output=subprocess.DEVNULL)
    except NotStartedError as error:
        raise failure(error.report, orders.program) from None
    try:
        outcome = f"ended with {process.wait(_TRIAL_SECONDS)}"
    except subprocess.TimeoutExpired:
        outcome = f"did not end within {_TRIAL_SECONDS:g} s"
    finally:
        process.end()
    if outcome != "ended with 0":
        raise IsolationUnavailableError(
            "landlock_failed", f"a program under Landlock {outcome} where it had nothing to do; {_ELSEWHERE}"
        )


def failure(report: Mapping[str, Any] | None, program: str) -> Exception:
    """Return the error for a kernel that was not started, from its launcher's report."""
    if report is None:
        return IsolationUnavailableError(
            "launcher_failed",
            "the launcher of isolated kernels ended without a word; the server's log may say why, such as that there "
            "is no memory",
        )
    step, code = report["step"], report["errno"]
    if step == "command" and code is not None:
        return OSError(code, os.strerror(code), program)
    text = "".join(character if character.isprintable() else " " for character in str(report["message"]))[:300]
    if step == "seccomp":
        return IsolationUnavailableError(
            "no_seccomp", f"the filter of system calls could not be set ({text}); allow the system call 'seccomp'"
        )
    return IsolationUnavailableError(
        f"{step}_failed", f"a kernel could not be isolated with Landlock, in the step {step!r}: {text}; {_ELSEWHERE}"
    )
