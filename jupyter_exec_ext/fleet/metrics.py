"""Metrics of a pool, for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PLACE_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.1, 0.25, 1.0, 5.0, 30.0)
_FORWARD_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0, 60.0)


class PoolMetrics:
    """The figures of one pool."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.servers = Gauge("exec_pool_servers", "Servers of the pool", ["state"], registry=self.registry)
        self.places_free = Gauge("exec_pool_places_free", "Sessions that can be placed now", registry=self.registry)
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
        self.lost_servers = Counter("exec_pool_lost_servers", "Servers that were given up", registry=self.registry)
        self.start_failures = Counter(
            "exec_pool_start_failures", "Servers that could not be started", registry=self.registry
        )

    def text(self, states: Counts[str], places_free: int) -> bytes:
        """Return all figures as Prometheus reads them."""
        self.servers.clear()
        for state, count in states.items():
            self.servers.labels(state).set(count)
        self.places_free.set(places_free)
        return generate_latest(self.registry)
