"""Prometheus metrics and Jupyter events, made from committed audit records.

The metrics are on the default registry, which Jupyter Server serves on ``/metrics``. Counters count records; gauges
read the engines. All engines of a process share the metrics. Labels have values from closed sets (states, error codes),
which bounds their number.

Events go to the handlers that the administrator has configured. Each has its record's number and digest, so that a log
kept elsewhere anchors the chain in the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from jupyter_events import EventLogger
from prometheus_client import Counter, Gauge, Histogram

from ..errors import ExecError
from ..models import AuditKind, AuditRecord, ExecutionState

_OTHER = "other"
_STATES = tuple(state.value for state in ExecutionState if state.finished)
_RUN_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600, 14_400, 86_400)

EXECUTIONS = Counter("jupyter_exec_executions", "Executions that have ended, by their state", ["state"])
EXECUTION_SECONDS = Histogram(
    "jupyter_exec_execution_seconds", "Run time of executions that ran, in seconds", buckets=_RUN_SECONDS
)
KERNEL_STARTS = Counter("jupyter_exec_kernel_starts", "Kernels started for sessions, restarts included")
DENIALS = Counter("jupyter_exec_denials", "Requests refused for lack of a right, by error code", ["code"])
POOL_SESSIONS = Counter(
    "jupyter_exec_pool_sessions", "Sessions whose kernel was ready in the pool (taken), or was not (missed)", ["kernel"]
)
POOL_DISCARDED = Counter("jupyter_exec_pool_discarded", "Kernels that were ready and that no session has had")
# A label that was never used is not exported, and a rate needs the 0 before the first count.
for _event in ("taken", "missed"):
    POOL_SESSIONS.labels(_event)
for _state in _STATES:
    EXECUTIONS.labels(_state)  # exported as 0 from the start


class Load(NamedTuple):
    """Numbers of sessions and executions of an engine now."""

    sessions: int
    running: int
    queued: int


class Loaded(Protocol):
    """Port to an engine's load."""

    def pooled(self) -> int:
        """Return the number of kernels in the warm pool."""

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of sessions, of running executions and of queued ones."""


_engines: WeakSet[Loaded] = WeakSet()


def _total(choose: Callable[[Load], int]) -> Callable[[], float]:
    return lambda: float(sum(choose(Load(*engine.counts())) for engine in list(_engines)))


Gauge("jupyter_exec_sessions", "Sessions that have not ended").set_function(_total(lambda load: load.sessions))
Gauge("jupyter_exec_running_executions", "Executions that run").set_function(_total(lambda load: load.running))
Gauge("jupyter_exec_queued_executions", "Executions that wait in their session's queue").set_function(
    _total(lambda load: load.queued)
)

Gauge("jupyter_exec_pooled_kernels", "Kernels that are ready for sessions to come").set_function(
    lambda: float(sum(engine.pooled() for engine in list(_engines)))
)


def watch(engine: Loaded) -> None:
    """Add an engine to the gauges, until it is garbage-collected."""
    _engines.add(engine)


def count_pooled(event: str) -> None:
    """Count an event of a warm pool: ``taken``, ``missed`` or ``discarded``."""
    if event == "discarded":
        POOL_DISCARDED.inc()
    else:
        POOL_SESSIONS.labels(event).inc()


def count(record: AuditRecord) -> None:
    """Count a committed record."""
    if record.kind is AuditKind.EXECUTION and record.action == "ended":
        EXECUTIONS.labels(_one_of(record.data["state"], _STATES)).inc()
        if record.data["run_seconds"] is not None:
            EXECUTION_SECONDS.observe(record.data["run_seconds"])
    elif record.kind is AuditKind.SESSION and record.action == "kernel_started":
        KERNEL_STARTS.inc()
    elif record.kind is AuditKind.DENIAL:
        _count_denials(record)


def _count_denials(record: AuditRecord) -> None:
    codes = ExecError.codes()
    if record.action != "suppressed":
        DENIALS.labels(_one_of(record.data.get("code"), codes)).inc()
    # Every denial record also carries the counts of those that the sampler left out before it.
    for code, number in record.data["suppressed"].items():
        DENIALS.labels(_one_of(code, codes)).inc(number)


def _one_of(value: object, known: tuple[str, ...] | dict[str, type[ExecError]]) -> str:
    return value if isinstance(value, str) and value in known else _OTHER


_SCHEMAS = Path(__file__).parent / "schemas"


def schema_id(kind: AuditKind) -> str:
    """Return the id of the schema of one kind of events."""
    return f"https://events.jupyter.org/jupyter_exec_ext/{kind.value}/v1"


class EventRecorder:
    """Emits records as events, and registers the schemas if necessary."""

    def __init__(self, events: EventLogger) -> None:
        self._events = events
        for kind in AuditKind:
            # Engines of one process share the logger, which raises an error for a second registration.
            if schema_id(kind) not in events.schemas:
                events.register_event_schema(_SCHEMAS / kind.value / "v1.yaml")

    def emit(self, record: AuditRecord) -> None:
        """Emit a record."""
        self._events.emit(schema_id=schema_id(record.kind), data=event_of(record))


def event_of(record: AuditRecord) -> dict[str, Any]:
    """Return a record as an event."""
    return {
        "seq": record.seq,
        "at": record.at,
        "action": record.action,
        "principal": record.principal,
        "subject": record.subject,
        "data": dict(record.data),
        "previous": record.previous,
        "digest": record.digest,
    }
