"""The end of processes that a sandbox has left, by a variable in their environment."""

from __future__ import annotations

import os
import secrets
import subprocess
import time

import pytest

from jupyter_exec_ext.isolation.common import isolated_process, leftovers
from jupyter_exec_ext.isolation.common.isolated_process import IsolatedProcess
from jupyter_exec_ext.isolation.common.leftovers import end_started_with

pytestmark = pytest.mark.needs("sandbox")


@pytest.fixture
def variable() -> str:
    return f"JEX_TEST={secrets.token_hex(8)}"


def processes_with(variable: str) -> list[int]:
    return [pid for pid, variables in leftovers._environments() if variable.encode() in variables]


def test_all_processes_with_a_variable_are_ended(variable: str) -> None:
    name, _, value = variable.partition("=")
    command = ["sh", "-c", "sleep 60 & sleep 60 & wait"]
    with subprocess.Popen(command, env={**os.environ, name: value}) as process:
        while len(processes_with(variable)) < 3:
            assert process.poll() is None
        end_started_with(variable)
        assert process.wait() < 0
    assert processes_with(variable) == []


def test_processes_that_cannot_be_killed_are_given_up_in_time(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_END_SECONDS", 0.1)
    monkeypatch.setattr(leftovers, "_kill", lambda pid: True)  # as if it were in an uninterruptible sleep
    name, _, value = variable.partition("=")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, name: value}) as process:
        while not processes_with(variable):
            assert process.poll() is None
        began = time.monotonic()
        end_started_with(variable)
        assert time.monotonic() - began < 5.0
        assert process.poll() is None
        process.kill()


class Unkillable(IsolatedProcess):
    """A process as in an uninterruptible sleep: no signal reaches it."""

    def send_signal(self, sig: int) -> None:
        """Send nothing."""


def test_process_that_cannot_be_killed_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_process, "END_SECONDS", 0.1)
    process = Unkillable(["sleep", "60"])
    began = time.monotonic()
    process.end()
    assert time.monotonic() - began < 5.0
    assert process.returncode is None
    os.kill(process.pid, 9)
    process.wait()
