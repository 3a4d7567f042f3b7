"""Metrics of a pool, for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .pool_server import ServerState
from .server_keeper import Keeper

_PLACE_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.1, 0.25, 1.0, 5.0, 30.0)
_FORWARD_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0, 60.0)
# A label that was never used is not exported, and an alert needs the 0 before the first count.
_REFUSALS = ("pool_full", "principal_full", "no_server_started", "server_unreachable")


class PoolMetrics:
    """The figures that a pool counts itself; the others are read from its keeper."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.place_seconds = Histogram(
            "exec_pool_place_seconds",
            "Time from a request for a session to the server's answer",
            buckets=_PLACE_BUCKETS,
            registry=self.registry,
        )
        self.forward_seconds = Histogram(
            "exec_pool_forward_seconds",
            "Time from a request for something that is on a server to the end of the answer",
            buckets=_FORWARD_BUCKETS,
            registry=self.registry,
        )
        self.refusals = Counter(
            "exec_pool_refusals", "Requests that the pool has refused", ["code"], registry=self.registry
        )
        for code in _REFUSALS:
            self.refusals.labels(code)

    def watch(self, keeper: Keeper) -> None:
        """Add the figures of a keeper."""
        self.registry.register(_KeeperMetrics(keeper))

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self.registry)


class _KeeperMetrics(Collector):
    """The figures of a keeper when they are asked for."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of now."""
        keeper = self._keeper
        states = Counts(server.state for server in keeper.servers.values())
        servers = GaugeMetricFamily("exec_pool_servers", "Servers of the pool", labels=["state"])
        for state in ServerState:
            servers.add_metric([state.value], states[state])
        yield servers
        loads = [server.load for server in keeper.servers.values() if server.load is not None]
        yield GaugeMetricFamily("exec_pool_sessions", "Sessions on its servers", sum(load.sessions for load in loads))
        yield GaugeMetricFamily("exec_pool_places_free", "Sessions that can be placed now", keeper.count_free_places())
        yield CounterMetricFamily("exec_pool_lost_servers", "Servers that were lost", keeper.lost_servers)
        yield CounterMetricFamily("exec_pool_start_failures", "Servers that could not be started", keeper.failed_starts)
