"""Processes of a sandbox: bubblewrap outside, the init of the namespace inside, and the kernel that init started.

Bubblewrap can be killed a moment before it has tied the inner process to its life, which then lives on. So the inner
process is held by a descriptor and killed through it. Everything in its namespace ends with it, and so does bubblewrap,
which waits for it. A kernel does not start before the two are tied: it waits at a gate, which stays closed if the
server is killed meanwhile.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from io import FileIO
from pathlib import Path
from typing import Protocol

from ..common.cgroup import ControlGroup
from ..common.isolated_process import END_SECONDS, IsolatedProcess
from ..common.launch_request import SOCKETS
from ..common.leftovers import end_started_with
from .namespace_sockets import NamespaceSockets

if sys.platform == "linux":
    import resource

#: Variable in the environment of bubblewrap, with the id of the sandbox.
SANDBOX_ID = "JUPYTER_EXEC_SANDBOX_ID"
_SETUP_SECONDS = 30.0
_TIE_SECONDS, _TIE_POLL_SECONDS = 1.0, 0.0005
_MAX_STATUS_BYTES = 4096
# Shells and bubblewrap add this to the number of a signal that ended a process.
_SIGNAL_BASE = 128
# The gate ends if the server closes its input without a line, as it does when the server is killed.
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")
_GO = b"go\n"


def put_behind_gate(command: Sequence[str]) -> list[str]:
    """Return the command that waits for a line of input before it becomes `command`."""
    return [*_GATE, *command]


class BrokenSandboxError(Exception):
    """Bubblewrap ended before it made the sandbox; its output has the reason."""


class Successor(Protocol):
    """Process of a kernel that has taken the place of a sandbox's first one."""

    pid: int

    @property
    def is_gone(self) -> bool:
        """True if it has ended."""


class SandboxProcess(IsolatedProcess):
    """A running sandbox.

    Parameters
    ----------
    command : sequence of str
        Bubblewrap and its arguments; this class adds descriptors.
    inner_command : sequence of str
        The command inside, which reads one line before it starts (`put_behind_gate`).
    env : mapping of str to str
        Bubblewrap's own environment, with a `SANDBOX_ID`; the kernel has another one.
    descriptors : sequence of int
        Descriptors that bubblewrap inherits.
    limits : mapping
        Limits from `cap_limits`. They are set on the inner process before it runs code that the kernel's environment
        can choose, such as a preloaded library.
    group : ControlGroup or None
        Control group for the processes, which they enter before they start.
    output : int
        Descriptor for the output of all processes.
    listen_at : int or None
        Port on the sandbox's loopback interface to listen at, before the kernel starts.

    Attributes
    ----------
    listener : socket.socket or None
        Listens at that port, in the sandbox's network namespace.

    Raises
    ------
    BrokenSandboxError
        If bubblewrap could not make the sandbox.
    """

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
        listen_at: int | None = None,
    ) -> None:
        self.listener: socket.socket | None = None
        self.init_pid: int | None = None
        self._kernel_pid: int | None = None
        #: Kernel in the place of the first one, which holds the sandbox open; None while there is no other.
        self.successor: Successor | None = None
        self._init: int | None = None
        #: Descriptor of the directory of sockets, which is inside.
        self.sockets: int | None = None
        self._status: FileIO | None = None
        try:
            # On an error the processes are ended before the pipes are closed, which would let bubblewrap go on.
            with ExitStack() as held, ExitStack() as undo:
                undo.callback(self._abandon, env[SANDBOX_ID])
                self._status, status_write = _pipe()  # kept open: bubblewrap writes to it once more when it ends
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
                # While the server has these ends open, too, a killed bubblewrap shows neither as an end of file
                # nor as a broken pipe.
                for of_bubblewrap in (status_write, block_read, gate_read):
                    of_bubblewrap.close()
                # The inner process waits for the block descriptor, so nothing runs before its limits and group are set.
                self._hold(self._first_status(), limits, group)
                block_write.write(b"1")
                self._until_tied()
                self._open_sockets()
                if listen_at is not None:
                    self._listen(listen_at)
                gate_write.write(_GO)
                undo.pop_all()
        except (BrokenPipeError, ProcessLookupError):  # bubblewrap has ended meanwhile
            raise BrokenSandboxError from None
        self._open.add(self)

    def _abandon(self, sandbox_id: str) -> None:
        """End the processes of a sandbox that could not be made."""
        # There is no `pid` if a pipe could not be made, and it is None if the fork failed.
        if getattr(self, "pid", None) is not None:
            self.kill()
            self._kill_itself()
            if self._init is None:  # bubblewrap was killed, and a child of it may wait for it for ever
                end_started_with(f"{SANDBOX_ID}={sandbox_id}")
        self.close()

    def _first_status(self) -> int:
        """Return the id of the inner process, which waits for the block descriptor."""
        assert self._status is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._status, selectors.EVENT_READ)
            text = b""
            while b"\n" not in text:
                part = self._status.read(_MAX_STATUS_BYTES) if selector.select(_SETUP_SECONDS) else b""
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
        """Wait until the inner process is tied to bubblewrap's life; right after that it sets its seccomp filter.

        If the filter cannot be seen, go on: only a server that is killed in this very moment leaves a process.
        """
        # In a container the server may have filters itself, which the inner process inherits.
        own = _count_filters("self")
        give_up_at = time.monotonic() + _TIE_SECONDS
        while own is not None and time.monotonic() < give_up_at:
            inner = _count_filters(str(self.init_pid))
            if inner is None or inner > own:
                break
            time.sleep(_TIE_POLL_SECONDS)
        if self.poll() is not None:
            raise BrokenSandboxError

    def _open_sockets(self) -> None:
        """Open the directory of sockets before code of the kernel runs that could replace it."""
        path = f"/proc/{self.init_pid}/root{SOCKETS}"
        give_up_at = time.monotonic() + _TIE_SECONDS
        while self.sockets is None:
            try:
                self.sockets = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:  # bubblewrap is still making it
                if time.monotonic() > give_up_at or self.poll() is not None:
                    raise BrokenSandboxError from None
                time.sleep(_TIE_POLL_SECONDS)

    def _listen(self, port: int) -> None:
        """Take a port before code of the kernel runs that could take it."""
        assert self.init_pid is not None
        with closing(NamespaceSockets(self.init_pid)) as sockets:
            self.listener = sockets.listen(port)

    @property
    def kernel_pid(self) -> int | None:
        """Process id of the kernel, as the server sees it; of the init before the kernel has started."""
        return self.original_kernel_pid if self.successor is None else self.successor.pid

    @property
    def original_kernel_pid(self) -> int | None:
        """Process id of the kernel that the sandbox was made for."""
        if self._kernel_pid is None and self.init_pid is not None:
            with suppress(OSError):
                children = Path(f"/proc/{self.init_pid}/task/{self.init_pid}/children").read_text().split()
                self._kernel_pid = int(children[0]) if children else None  # the oldest is the kernel
        return self._kernel_pid or self.init_pid

    def poll(self) -> int | None:
        """Return the kernel's exit code, negative for a signal; None while it runs."""
        return _decode_exit_code(super().poll())

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the kernel, and return its exit code as `poll` does."""
        code = _decode_exit_code(super().wait(timeout))
        assert code is not None
        return code

    def kill(self) -> None:
        """Kill everything inside; bubblewrap then ends, too."""
        if self._init is None:
            super().kill()
            return
        with suppress(ProcessLookupError):
            # Not bubblewrap, which has to reap the inner process. Otherwise a server that is process 1 gets a zombie.
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        self.send_signal(signal.SIGCONT)  # a stopped bubblewrap could not end

    def suspend_init(self) -> None:
        """Keep the init of the namespace from noticing that the first process has ended."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGSTOP)

    def send_to_kernel(self, signum: int) -> None:
        """Send a signal to the kernel and to what it has started in its session."""
        pid = self.kernel_pid
        if pid is None or pid == self.init_pid or self.poll() is not None:
            return
        if self.successor is not None and self.successor.is_gone:
            return
        with suppress(ProcessLookupError):
            try:
                os.killpg(pid, signum)
            except ProcessLookupError:  # it has not started its session yet
                os.kill(pid, signum)

    def close(self) -> None:
        """Kill the inner process if needed, and release the descriptors. Call it after bubblewrap has ended."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            with selectors.DefaultSelector() as selector:
                # Control groups and directories cannot be removed while processes in them still end.
                selector.register(self._init, selectors.EVENT_READ)
                selector.select(END_SECONDS)
            with suppress(ChildProcessError):  # if the server is process 1, orphans of bubblewrap are its children
                os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)
            with suppress(subprocess.TimeoutExpired):
                self.wait(END_SECONDS)  # the kernel that has ended may not have been the first one
        super().close()

    def _release(self) -> None:
        if self._init is not None:
            os.close(self._init)
        if self._status is not None:
            self._status.close()
        if self.sockets is not None:
            os.close(self.sockets)
        if self.listener is not None:
            self.listener.close()
        self._init = self._status = self.sockets = self.listener = None
        super()._release()


def _decode_exit_code(code: int | None) -> int | None:
    # An exit code above 128 that the kernel chose itself looks the same as a signal.
    return code if code is None or code <= _SIGNAL_BASE else _SIGNAL_BASE - code


def _pipe() -> tuple[FileIO, FileIO]:
    read, write = os.pipe()
    return FileIO(read, "rb"), FileIO(write, "wb")


def _count_filters(process: str) -> int | None:
    """Return the number of seccomp filters of a process; None if the system does not show it."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            # Linux shows this number since 5.9.
            if name == "Seccomp_filters":
                return int(value)
    return None
