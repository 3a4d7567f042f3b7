"""A sandbox's processes: bubblewrap outside, the init of the namespace inside, and the kernel that it started.

Bubblewrap's own process can be killed a moment before it has tied the inner one to its life, which then goes on. So the
inner one is held by a descriptor, and killed through that: with it everything in its namespace ends, and bubblewrap
itself, which waits for it. And a kernel does not begin before the two are tied: until then it waits at a gate, which
does not open if the server is killed meanwhile.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from ..common.cgroup import ControlGroup
from ..common.launch_request import SOCKETS
from ..common.leftovers import end_started_with

if sys.platform == "linux":
    import resource

#: In the environment of bubblewrap: which sandbox it is.
SANDBOX_ID = "JUPYTER_EXEC_SANDBOX_ID"
_SETUP_SECONDS = 30.0
_TIE_SECONDS, _TIE_POLL_SECONDS = 1.0, 0.0005
_END_SECONDS = 10.0
_MAX_SAID_BYTES = 4096
# How shells, and bubblewrap, tell an end by a signal.
_SIGNAL_BASE = 128
# It ends without a word from the server, as it does when there is no server any more.
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")
_GO = b"go\n"


def behind_gate(command: Sequence[str]) -> list[str]:
    """Return the command that waits until it may become `command`."""
    return [*_GATE, *command]


def possible_limits(wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return limits of the system as low as those that we have ourselves, which only root could raise."""
    if sys.platform != "linux":
        return dict(wanted)
    possible = {}
    for name, values in wanted.items():
        own = resource.getrlimit(getattr(resource, name))[1]
        soft, hard = values if own == resource.RLIM_INFINITY else (min(value, own) for value in values)
        possible[name] = (soft, hard)
    return possible


class SandboxProcess(subprocess.Popen[bytes]):
    """A running sandbox. To be made in a thread that lives as long as the server: with it the sandbox ends.

    Parameters
    ----------
    command : sequence of str
        Bubblewrap and its arguments, but for those that are added here.
    inner_command : sequence of str
        What runs inside; it reads one line before it goes on (`behind_gate`).
    env : mapping
        Bubblewrap's own environment, with a `SANDBOX_ID`; the kernel has another one.
    descriptors : sequence of int
        Which bubblewrap inherits.
    limits : mapping
        Those of `possible_limits`. Set on the inner process, before anything runs there that the kernel's environment
        has a say in: a library to be loaded first would otherwise be quicker.
    group : ControlGroup or None
        Where its processes are put before they begin.

    Raises
    ------
    BrokenSandboxError
        If bubblewrap could not make the sandbox.
    """

    _held: ClassVar[set[SandboxProcess]] = set()

    def __init__(
        self,
        command: Sequence[str],
        inner_command: Sequence[str],
        *,
        env: Mapping[str, str],
        descriptors: Sequence[int],
        limits: Mapping[str, tuple[int, int]],
        group: ControlGroup | None,
        output: int,
    ) -> None:
        self.init_pid: int | None = None
        self._kernel_pid: int | None = None
        self._init: int | None = None
        #: Descriptor of the directory of its sockets, which is inside.
        self.sockets: int | None = None
        self._status: FileIO | None = None
        with ExitStack() as held:
            try:
                self._status, status_write = _pipe()  # kept: bubblewrap writes there once more when it ends
                held.enter_context(status_write)
                block_read, block_write = map(held.enter_context, _pipe())
                gate_read, gate_write = map(held.enter_context, _pipe())
                of_status, of_block = status_write.fileno(), block_read.fileno()
                super().__init__(
                    [*command, "--json-status-fd", str(of_status), "--block-fd", str(of_block), "--", *inner_command],
                    stdin=gate_read,
                    stdout=output,
                    stderr=output,
                    env=dict(env),
                    pass_fds=[*descriptors, of_status, of_block],
                    start_new_session=True,
                )
                for of_bubblewrap in (status_write, block_read, gate_read):
                    of_bubblewrap.close()
                self._hold(self._first_status(), limits, group)
                block_write.write(b"1")
                self._until_tied()
                self._open_sockets()
                gate_write.write(_GO)
            except BaseException as error:
                self._abandon(env[SANDBOX_ID])
                if isinstance(error, (BrokenPipeError, ProcessLookupError)):  # it has ended meanwhile
                    raise BrokenSandboxError from None
                raise

        # Kept until it is closed: the garbage collector calls `__del__` even of what is then given to somebody to end.
        self._held.add(self)

    def _abandon(self, sandbox_id: str) -> None:
        """End what there is of a sandbox that did not come about."""
        if getattr(self, "pid", None) is not None:
            self.kill()
            super().kill()
            self.wait()
            if self._init is None:  # somebody has killed bubblewrap, and what it had begun may wait for it for ever
                end_started_with(f"{SANDBOX_ID}={sandbox_id}")
        self.close()

    def _first_status(self) -> int:
        """Return the id of the inner process, which waits until we let it go on."""
        assert self._status is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._status, selectors.EVENT_READ)
            text = b""
            while b"\n" not in text:
                part = self._status.read(_MAX_SAID_BYTES) if selector.select(_SETUP_SECONDS) else b""
                if not part:
                    raise BrokenSandboxError
                text += part
        return int(json.loads(text.partition(b"\n")[0])["child-pid"])

    def _hold(self, init_pid: int, limits: Mapping[str, tuple[int, int]], group: ControlGroup | None) -> None:
        self.init_pid = init_pid
        self._init = os.pidfd_open(init_pid)
        if group is not None:
            group.add(self.pid)
            group.add(init_pid)
        if sys.platform == "linux":
            for name, values in limits.items():
                resource.prlimit(init_pid, getattr(resource, name), values)

    def _until_tied(self) -> None:
        """Wait until the inner process ends with bubblewrap; right after that it takes on its filter of system calls.

        Where that cannot be seen, nothing is lost but for servers that are killed in this very moment.
        """
        own = _filters("self")
        give_up_at = time.monotonic() + _TIE_SECONDS
        while own is not None and time.monotonic() < give_up_at:
            inner = _filters(str(self.init_pid))
            if inner is None or inner > own:
                break
            time.sleep(_TIE_POLL_SECONDS)
        if self.poll() is not None:
            raise BrokenSandboxError

    def _open_sockets(self) -> None:
        """Open the directory of sockets while no code of the kernel's runs that could put something in its place."""
        path = f"/proc/{self.init_pid}/root{SOCKETS}"
        give_up_at = time.monotonic() + _TIE_SECONDS
        while self.sockets is None:
            try:
                self.sockets = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:  # it is still being made
                if time.monotonic() > give_up_at or self.poll() is not None:
                    raise BrokenSandboxError from None
                time.sleep(_TIE_POLL_SECONDS)

    @property
    def kernel_pid(self) -> int | None:
        """The kernel's process, by its id outside; the init's while there is none."""
        if self._kernel_pid is None and self.init_pid is not None:
            with suppress(OSError):
                children = Path(f"/proc/{self.init_pid}/task/{self.init_pid}/children").read_text().split()
                self._kernel_pid = int(children[0]) if children else None  # the oldest is the kernel
        return self._kernel_pid or self.init_pid

    def poll(self) -> int | None:
        """Return how the kernel ended as `Popen` tells it, negative for a signal; None if it has not."""
        return _decoded(super().poll())

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return it as `poll` does."""
        code = _decoded(super().wait(timeout))
        assert code is not None
        return code

    def kill(self) -> None:
        """End everything inside. With that bubblewrap ends, unless it was killed before."""
        if self._init is None:
            super().kill()
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        self.send_signal(signal.SIGCONT)  # in case that somebody has stopped it

    def end(self) -> None:
        """End everything inside, and wait for that."""
        self.kill()
        try:
            self.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            super().kill()
            self.wait()
        self.close()

    def send_to_kernel(self, signum: int) -> None:
        """Send a signal to the kernel and what it has started in its session."""
        pid = self.kernel_pid
        if pid is None or pid == self.init_pid or self.poll() is not None:
            return
        with suppress(ProcessLookupError):
            try:
                os.killpg(pid, signum)
            except ProcessLookupError:  # it has not begun its session yet
                os.kill(pid, signum)

    def close(self) -> None:
        """Let go of the descriptors, after the inner process has ended; for a sandbox whose bubblewrap has ended."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            with selectors.DefaultSelector() as selector:
                selector.register(self._init, selectors.EVENT_READ)
                selector.select(_END_SECONDS)
            with suppress(ChildProcessError):  # where we are process 1, what bubblewrap leaves behind is our child
                os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)
        self._let_go()

    def _let_go(self) -> None:
        if self._init is not None:
            os.close(self._init)
        if self._status is not None:
            self._status.close()
        if self.sockets is not None:
            os.close(self.sockets)
        self._init = self._status = self.sockets = None
        self._held.discard(self)

    def __del__(self, **kwargs: Any) -> None:
        """Close what is held; `Popen` warns if the process has not ended."""
        self._let_go()
        super().__del__(**kwargs)


class BrokenSandboxError(Exception):
    """Bubblewrap has ended before it made the sandbox; what it said tells why."""


def _decoded(code: int | None) -> int | None:
    return code if code is None or code <= _SIGNAL_BASE else _SIGNAL_BASE - code


def _pipe() -> tuple[FileIO, FileIO]:
    read, write = os.pipe()
    return FileIO(read, "rb"), FileIO(write, "wb")


def _filters(process: str) -> int | None:
    """Return how many filters of system calls a process is under; None if that cannot be seen."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Seccomp_filters":
                return int(value)
    return None
