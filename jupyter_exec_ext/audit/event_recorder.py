"""Export of audit records as Jupyter events, for the handlers that the administrator has configured.

An event is emitted after its record was committed. It has the record's number and digest, so that a log kept elsewhere
anchors the chain in the store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_events import EventLogger

from ..models import AuditKind, AuditRecord

_SCHEMAS = Path(__file__).parent / "schemas"


def schema_id(kind: AuditKind) -> str:
    """Return the id of the schema of one kind of events."""
    return f"https://events.jupyter.org/jupyter_exec_ext/{kind.value}/v1"


class EventRecorder:
    """Emits records as events, and registers the schemas if necessary."""

    def __init__(self, events: EventLogger) -> None:
        self._events = events
        for kind in AuditKind:
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
