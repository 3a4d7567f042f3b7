"""A sandbox's processes: bubblewrap outside, the init of the namespace inside, and the kernel that it started.

Bubblewrap's own process can be killed a moment before it has tied the inner one to its life, which then goes on. So the
inner one is held by a descriptor and killed first: with it everything in its namespace ends.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .cgroup import ControlGroup

_SETUP_SECONDS = 30.0
_MAX_SAID_BYTES = 4096
# How shells, and bubblewrap, tell an end by a signal.
_SIGNAL_BASE = 128


class SandboxProcess(subprocess.Popen[bytes]):
    """A running sandbox. To be made in a thread that lives as long as the server: with it the sandbox ends.

    Parameters
    ----------
    command : sequence of str
        Bubblewrap and its arguments, but for those that are added here.
    env : mapping
        Bubblewrap's own environment; the kernel has another one.
    descriptors : sequence of int
        Which bubblewrap inherits.
    group : ControlGroup or None
        Where its processes are put before they begin.

    Raises
    ------
    IsolationUnavailableError
        If bubblewrap could not make the sandbox.
    """

    def __init__(
        self,
        command: Sequence[str],
        inner_command: Sequence[str],
        *,
        env: Mapping[str, str],
        descriptors: Sequence[int],
        group: ControlGroup | None,
        output: int,
    ) -> None:
        self.init_pid: int | None = None
        self._kernel_pid: int | None = None
        self._init: int | None = None
        self._status: int | None
        self._status, status_write = os.pipe()  # kept: bubblewrap writes there once more when it ends
        block_read, block_write = os.pipe()
        try:
            super().__init__(
                [*command, "--json-status-fd", str(status_write), "--block-fd", str(block_read), "--", *inner_command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(env),
                pass_fds=[*descriptors, status_write, block_read],
                start_new_session=True,
            )
            os.close(status_write)
            status_write = -1
            self._hold(self._first_status(), group)
            os.write(block_write, b"1")
        except BaseException:
            if hasattr(self, "returncode"):  # it was started
                self.kill()
                self.wait()
            self.close()
            raise
        finally:
            for descriptor in (status_write, block_read, block_write):
                if descriptor >= 0:
                    os.close(descriptor)

    def _first_status(self) -> int:
        """Return the id of the inner process, which waits until we let it go on."""
        assert self._status is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._status, selectors.EVENT_READ)
            text = b""
            while b"\n" not in text:
                part = os.read(self._status, _MAX_SAID_BYTES) if selector.select(_SETUP_SECONDS) else b""
                if not part:
                    raise BrokenSandboxError
                text += part
        return int(json.loads(text.partition(b"\n")[0])["child-pid"])

    def _hold(self, init_pid: int, group: ControlGroup | None) -> None:
        self.init_pid = init_pid
        self._init = os.pidfd_open(init_pid)
        if group is not None:
            group.add(self.pid)
            group.add(init_pid)

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
        """End everything inside, and bubblewrap."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
        super().kill()

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
        """Let go of the descriptors; for a sandbox that has ended."""
        for descriptor in (self._init, self._status):
            if descriptor is not None:
                os.close(descriptor)
        self._init = self._status = None

    def __del__(self, **kwargs: Any) -> None:
        """Close what is held; `Popen` warns if the process has not ended."""
        self.close()
        super().__del__(**kwargs)


class BrokenSandboxError(Exception):
    """Bubblewrap has ended before it made the sandbox; what it said tells why."""


def _decoded(code: int | None) -> int | None:
    return code if code is None or code <= _SIGNAL_BASE else _SIGNAL_BASE - code
