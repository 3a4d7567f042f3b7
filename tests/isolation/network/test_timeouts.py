"""Timeouts of the proxy: none swallows a cancellation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_exec_ext.isolation import network
from jupyter_exec_ext.isolation.network.timeouts import finish_within


@pytest.mark.parametrize("turns", range(5))
async def test_cancellation_at_the_end_of_an_operation_is_not_lost(turns: int) -> None:
    operation = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(finish_within(5, operation))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    operation.set_result("done")
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert task.result() == "done"


async def test_operation_that_takes_too_long_is_cancelled() -> None:
    operation = asyncio.create_task(asyncio.sleep(60))
    with pytest.raises(asyncio.TimeoutError):
        await finish_within(0.01, operation)
    assert operation.cancelled()


async def test_error_of_an_operation_is_raised() -> None:
    with pytest.raises(ValueError, match="wrong"):
        await finish_within(1, _fail())


async def _fail() -> None:
    raise ValueError("wrong")


def test_modules_of_the_proxy_do_not_call_asyncio_wait_for() -> None:
    directory = Path(network.__file__).parent
    assert [path.name for path in directory.glob("*.py") if "asyncio.wait_for(" in path.read_text()] == []
