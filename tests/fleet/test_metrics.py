"""The metrics of a pool, which `tests/docs/admin/test_monitoring.py` compares with the page, dashboard and alerts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_exec_ext.fleet.metrics import PoolMetrics
from tests.support.fleets import RunningKeeper, SimulatedFleet, running_keeper, short_times
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with short_times(monkeypatch):
        yield


def watching(keeper: RunningKeeper) -> PoolMetrics:
    metrics = PoolMetrics()
    metrics.watch(keeper)
    return metrics


def value(metrics: PoolMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def test_servers_sessions_and_places_are_those_of_now() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=2, sessions_per_server=10) as keeper:
        metrics = watching(keeper)
        await until(lambda: value(metrics, "exec_pool_servers", state="ready") == 2)
        fleet[next(iter(keeper.servers))].sessions = ["ses_1"]
        await until(lambda: value(metrics, "exec_pool_sessions") == 1)
        assert value(metrics, "exec_pool_places_free") == 19
        assert value(metrics, "exec_pool_servers", state="unreachable") == 0
        assert b'exec_pool_servers{state="ready"} 2.0' in metrics.text()


async def test_server_that_dies_is_counted_as_lost_and_one_that_is_stopped_is_not() -> None:
    fleet = SimulatedFleet()
    async with running_keeper(fleet, min_servers=2) as keeper:
        metrics = watching(keeper)
        await until(lambda: value(metrics, "exec_pool_servers", state="ready") == 2)
        first, second = keeper.servers.values()
        await fleet[first.name].die()
        await until(lambda: keeper.ended == [first])
        await keeper.drain(second.name)
        await until(lambda: second in keeper.ended)
        assert (first.is_loss, second.is_loss) == (True, False)
        assert value(metrics, "exec_pool_lost_servers_total") == 1


def test_refusals_and_failures_are_exported_before_there_are_any() -> None:
    metrics = PoolMetrics()
    assert value(metrics, "exec_pool_refusals_total", code="pool_full") == 0
    metrics.refusals.labels("pool_full").inc()
    assert value(metrics, "exec_pool_refusals_total", code="pool_full") == 1
