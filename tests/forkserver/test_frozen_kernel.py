"""The socket on which the server waits for the process of a checkpoint."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("checkpoints need Linux", allow_module_level=True)

from jupyter_exec_ext.errors import CheckpointFailed
from jupyter_exec_ext.forkserver.frozen_kernel import FrozenKernel, FrozenKernelListener
from tests.support.session_processes import ends
from tests.support.waiting import wait_until

# Connects, says lines that are given, and waits; a child of it has a copy of the connection.
_HOSTILE = """
import os, socket, sys, time
control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
control.sendall(b'{"nonce": "n"}\\n')
if not os.fork():
    os.setsid()
    time.sleep(60)
for line in sys.stdin:
    control.sendall(line.encode())
time.sleep(60)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[tuple[FrozenKernel, subprocess.Popen[str]]]:
    """A process of a checkpoint that says what it is told to say."""
    listener = FrozenKernelListener(tmp_path / "chkpt")
    command = [sys.executable, "-c", _HOSTILE, str(tmp_path / "chkpt")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as process:
        yield listener.accept("n", 20.0), process
        process.kill()
    listener.close()
    subprocess.run(["pkill", "-9", "-f", str(tmp_path)], check=False)  # its child


def readers() -> int:
    return sum(thread.name == "forkserver-reader" for thread in threading.enumerate())


def test_nothing_of_the_server_waits_for_a_process_that_is_killed(
    hostile: tuple[FrozenKernel, subprocess.Popen[str]],
) -> None:
    frozen, process = hostile
    before = readers()
    assert before
    frozen.kill()  # its child has a copy of the connection, and lives
    wait_until(lambda: readers() == before - 1)
    assert ends(process.pid, within_seconds=5)


@pytest.mark.parametrize(
    "lines", ["forked 1\n", "exited 1 0\n", "forked 7\nforked 7\n", "x" * 100 + "\n", "forked x\n"]
)
def test_reports_of_what_was_not_asked_for_are_the_end_of_the_process(
    hostile: tuple[FrozenKernel, subprocess.Popen[str]], lines: str
) -> None:
    frozen, process = hostile
    assert process.stdin is not None
    descriptors, before = len(os.listdir("/proc/self/fd")), readers()
    process.stdin.write(lines)
    process.stdin.flush()
    wait_until(lambda: frozen.is_gone)
    assert ends(process.pid, within_seconds=5)
    wait_until(lambda: readers() == before - 1)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_socket_may_have_a_long_path_and_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    listener = FrozenKernelListener(directory / "kernel-chkpt")
    try:
        assert (directory / "kernel-chkpt").stat().st_mode & 0o777 == 0o600
        short = tmp_path / "short"
        short.symlink_to(directory)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(short / "kernel-chkpt"))
            client.sendall(b'{"nonce": "n", "problem": "there is none"}\n')
            with pytest.raises(CheckpointFailed, match="there is none"):
                listener.accept("n", 5.0)
    finally:
        listener.close()
    assert list(directory.iterdir()) == []
