"""JSON of Jupyter's standard API: sessions as kernels, and kernelspecs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..models import KernelSpecInfo, Session, SessionState
from .kernel_ids import kernel_id_of

#: Fields of a session of the standard API, which the session's metadata keeps.
SESSION_FIELDS = ("path", "name", "type")
_METADATA = "jupyter_session"
_STATES = {SessionState.BUSY: "busy", SessionState.IDLE: "idle", SessionState.ENDED: "dead"}


def kernel_to_json(session: Session, connections: int) -> dict[str, Any]:
    """Return a session as a kernel."""
    return {
        "id": kernel_id_of(session.id),
        "name": session.kernel_name,
        "last_activity": session.last_activity_at,
        "execution_state": _STATES.get(session.state, session.state.value),
        "connections": connections,
    }


def session_to_json(session: Session, connections: int) -> dict[str, Any]:
    """Return a session as one of the standard API, which has the id of its kernel."""
    kept = session.metadata.get(_METADATA)
    fields = kept if isinstance(kept, dict) else {}
    return {
        "id": kernel_id_of(session.id),
        **{name: str(fields.get(name) or "") for name in SESSION_FIELDS},
        "kernel": kernel_to_json(session, connections),
        "notebook": {"path": str(fields.get("path") or ""), "name": str(fields.get("name") or "")},
    }


def session_metadata(fields: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of a session that was asked for with these fields of the standard API."""
    return {_METADATA: fields}


def kernelspecs_to_json(specs: Iterable[KernelSpecInfo], default: str) -> dict[str, Any]:
    """Return the kernelspecs that a caller may use."""
    listed = {spec.name: _kernelspec_to_json(spec) for spec in specs}
    return {"default": default if default in listed else next(iter(listed), default), "kernelspecs": listed}


def _kernelspec_to_json(spec: KernelSpecInfo) -> dict[str, Any]:
    return {
        "name": spec.name,
        "spec": {
            "argv": [],  # how the server starts it is not the caller's business
            "env": {},
            "display_name": spec.display_name,
            "language": spec.language,
            "interrupt_mode": "signal",
            "metadata": {},
        },
        "resources": {},
    }
