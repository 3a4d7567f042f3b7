"""How a process ended that is not our child, before and after its parent has asked."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from jupyter_exec_ext.system.non_child_exit import exit_code_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has descriptors of processes")
# Starts a process, prints its number, and collects it when it is told to.
_PARENT = """
import subprocess, sys
child = subprocess.Popen(["sh", "-c", "read go; " + sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.stdin.close()
input()
child.wait()
print("collected", flush=True)
input()
"""


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", -signal.SIGKILL)])
def test_the_code_of_another_process_child_is_found(end: str, code: int) -> None:
    command = [sys.executable, "-c", _PARENT, end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pid = int(parent.stdout.readline())
        pidfd = os.pidfd_open(pid)
        parent.stdin.write("\n")
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(20_000)
        wait_until(lambda: exit_code_of(pid, pidfd) is not None)
        assert exit_code_of(pid, pidfd) == code
        parent.stdin.write("\n")
        parent.stdout.readline()
        assert exit_code_of(pid, pidfd) in (code, None)  # None before Linux 6.15
        os.close(pidfd)
        parent.stdin.write("\n")


def test_the_code_of_a_living_process_is_not_known() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        pidfd = os.pidfd_open(process.pid)
        assert exit_code_of(process.pid, pidfd) is None
        os.close(pidfd)
        process.kill()
