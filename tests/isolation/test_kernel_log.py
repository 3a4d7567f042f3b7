"""Rate limits of the text that isolated kernels print into the server's log."""

from __future__ import annotations

import logging

import pytest

from jupyter_exec_ext.isolation.common.kernel_output import KernelOutput, LogBudget

LOG = logging.getLogger("sandboxes")
ID = "e2b0c4de-6f7e-4a43-8b3a-0123456789ab"
PREFIX = "[I 2026-11-26 05:38:00.123 ServerApp] "


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> LogBudget:
    return LogBudget(clock=clock)


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sandboxes")


def logged_bytes(caplog: pytest.LogCaptureFixture) -> int:
    return sum(len(f"{PREFIX}{record.getMessage()}\n".encode()) for record in caplog.records)


@pytest.mark.parametrize("line", [b"x", b"x" * 500, b"\x01" * 500, b"\xff" * 999, "\u202e".encode() * 300, b""])
@pytest.mark.parametrize("lines_at_once", [1, 1000])
def test_one_kernel_logs_at_most_four_kilobytes_and_a_count(
    caplog: pytest.LogCaptureFixture, budget: LogBudget, line: bytes, lines_at_once: int
) -> None:
    output = KernelOutput(ID, LOG, budget)
    for _ in range(10_000 // lines_at_once):
        output.add((line + b"\n") * lines_at_once)
    output.end()
    assert logged_bytes(caplog) <= 4 * 1024 + 200
    if line:
        assert "bytes more of its output are not logged" in caplog.records[-1].getMessage()


def test_first_lines_are_logged_and_the_others_are_counted(caplog: pytest.LogCaptureFixture, budget: LogBudget) -> None:
    output = KernelOutput(ID, LOG, budget)
    output.add(b"first\n" + b"x" * 5000 + b"\n" + b"".join(b"%d\n" % number for number in range(1000)))
    output.end()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"kernel {ID}: first"
    kept = sum(len(line.partition(": ")[2]) + 1 for line in lines[2:-1])
    total = sum(len(str(number)) + 1 for number in range(1000))
    assert lines[-1] == f"kernel {ID}: {total - kept} bytes more of its output are not logged"


def test_all_kernels_share_a_budget_that_is_refilled(
    caplog: pytest.LogCaptureFixture, budget: LogBudget, clock: Clock
) -> None:
    for number in range(100):
        output = KernelOutput(f"{number:036}", LOG, budget)
        output.add(b"y" * 300 * 100 + b"\n" + b"z\n" * 3000)
        output.end()
    assert 24 * 1024 <= logged_bytes(caplog) <= 32 * 1024
    caplog.clear()
    clock.seconds += 10
    output = KernelOutput(ID, LOG, budget)
    output.add(b"words\n" * 100)
    output.end()
    assert 100 <= logged_bytes(caplog) <= 320


def test_budget_refills_to_its_stock_at_most(budget: LogBudget, clock: Clock) -> None:
    clock.seconds += 1e6
    assert budget.spend(32 * 1024)
    assert not budget.spend(1)
    clock.seconds += 1
    assert budget.spend(32)
    assert not budget.spend(1)
