"""JSON of Jupyter's kernels API: kernels, sessions and kernelspecs, made from the package's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..models import KernelSpecInfo, Session, SessionState
from .kernel_ids import kernel_id_of

#: Fields of a session in Jupyter's API, which are kept in the metadata of our session.
SESSION_FIELDS = ("path", "name", "type")
_METADATA = "jupyter_session"
_STATES = {SessionState.BUSY: "busy", SessionState.IDLE: "idle", SessionState.ENDED: "dead"}


def kernel_to_json(session: Session, connections: int) -> dict[str, Any]:
    """Return a session as a kernel.

    Parameters
    ----------
    session : Session
        The session.
    connections : int
        Number of connected clients.

    Returns
    -------
    dict
        The JSON object.
    """
    return {
        "id": kernel_id_of(session.id),
        "name": session.kernel_name,
        "last_activity": session.last_activity_at,
        "execution_state": _STATES.get(session.state, session.state.value),
        "connections": connections,
    }


def session_to_json(session: Session, connections: int) -> dict[str, Any]:
    """Return a session as a session of Jupyter's API, whose id is that of its kernel.

    Parameters
    ----------
    session : Session
        The session.
    connections : int
        Number of connected clients.

    Returns
    -------
    dict
        The JSON object.
    """
    kept = session.metadata.get(_METADATA)
    fields = kept if isinstance(kept, dict) else {}
    return {
        "id": kernel_id_of(session.id),
        **{name: str(fields.get(name) or "") for name in SESSION_FIELDS},
        "kernel": kernel_to_json(session, connections),
        "notebook": {"path": str(fields.get("path") or ""), "name": str(fields.get("name") or "")},
    }


def make_session_name(path: str) -> str:
    """Return a session's name for people: the last part of its path, cut at 100 characters.

    Parameters
    ----------
    path : str
        Path of the session in Jupyter's API.

    Returns
    -------
    str
        The name.
    """
    return path.rpartition("/")[2][:100]


def make_session_metadata(fields: dict[str, str]) -> dict[str, Any]:
    """Return a session's metadata with fields of Jupyter's API.

    Parameters
    ----------
    fields : dict
        Values of `SESSION_FIELDS`.

    Returns
    -------
    dict
        The metadata.
    """
    return {_METADATA: fields}


def kernelspecs_to_json(specs: Iterable[KernelSpecInfo], default: str) -> dict[str, Any]:
    """Return the answer of ``/api/kernelspecs``.

    Parameters
    ----------
    specs : iterable of KernelSpecInfo
        Kernelspecs that the caller may use.
    default : str
        Name of the server's default kernelspec. If it is not among them, the first one is the default.

    Returns
    -------
    dict
        The JSON object.
    """
    listed = {spec.name: _kernelspec_to_json(spec) for spec in specs}
    return {"default": default if default in listed else next(iter(listed), default), "kernelspecs": listed}


def _kernelspec_to_json(spec: KernelSpecInfo) -> dict[str, Any]:
    return {
        "name": spec.name,
        "spec": {
            "argv": [],  # hides the server's paths
            "env": {},
            "display_name": spec.display_name,
            "language": spec.language,
            "interrupt_mode": "signal",
            "metadata": {},
        },
        "resources": {},
    }
