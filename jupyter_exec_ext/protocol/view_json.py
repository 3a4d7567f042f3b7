"""JSON of answers that are not stored: use of a kernel, changes of a file, ports, secrets, and a server's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from ..errors import UnexpectedAnswer
from ..models import (
    Checkpoint,
    CheckpointEvent,
    FileChange,
    Hindrance,
    JSONObject,
    NetworkActivity,
    Readiness,
    Secret,
    ServerLoad,
    SessionNetwork,
    SessionPort,
    SessionUsage,
    UsageSample,
)

R = TypeVar(
    "R",
    Checkpoint,
    CheckpointEvent,
    Hindrance,
    SessionPort,
    SessionUsage,
    UsageSample,
    FileChange,
    Readiness,
    ServerLoad,
    SessionNetwork,
    NetworkActivity,
    Secret,
)

#: Records that are sent with their own field names.
View = Checkpoint | CheckpointEvent | SessionUsage | SessionNetwork | FileChange | Readiness | ServerLoad | Secret


def view_to_json(record: View) -> JSONObject:
    """Return a record as a JSON object with the record's own field names."""
    return asdict(record)


def usage_from_json(data: Any) -> SessionUsage:
    """Read a `SessionUsage`; raises `UnexpectedAnswer` if it is none."""
    return _build(SessionUsage, data, lambda samples: tuple(_build(UsageSample, sample) for sample in samples))


def file_change_from_json(data: Any) -> FileChange:
    """Read a `FileChange`; raises `UnexpectedAnswer` if it is none."""
    return _build(FileChange, data)


def checkpoint_from_json(data: Any) -> Checkpoint:
    """Read a `Checkpoint`; raises `UnexpectedAnswer` if it is none."""
    checkpoint = _build(Checkpoint, data)
    return replace(checkpoint, lost=tuple(_build(Hindrance, item) for item in checkpoint.lost))


def checkpoint_event_from_json(data: Any) -> CheckpointEvent:
    """Read a `CheckpointEvent`; raises `UnexpectedAnswer` if it is none."""
    return _build(CheckpointEvent, data)


def session_port_from_json(data: Any) -> SessionPort:
    """Read a `SessionPort`; raises `UnexpectedAnswer` if it is none."""
    return _build(SessionPort, data)


def session_network_from_json(data: Any) -> SessionNetwork:
    """Read a `SessionNetwork`; raises `UnexpectedAnswer` if it is none."""
    network = _build(SessionNetwork, data)
    return replace(network, requests=[_build(NetworkActivity, item) for item in network.requests])


def secret_from_json(data: Any) -> Secret:
    """Read a `Secret`; raises `UnexpectedAnswer` if it is none."""
    return _build(Secret, data)


def readiness_from_json(data: Any) -> Readiness:
    """Read a `Readiness`; raises `UnexpectedAnswer` if it is none."""
    return _build(Readiness, data)


def server_load_from_json(data: Any) -> ServerLoad:
    """Read a `ServerLoad`; raises `UnexpectedAnswer` if it is none."""
    return _build(ServerLoad, data)


def _build(cls: type[R], data: Any, read_samples: Callable[[Any], Any] = tuple) -> R:
    try:
        known = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        if "samples" in known:
            known["samples"] = read_samples(known["samples"])
        return cls(**known)
    except (TypeError, KeyError) as error:
        raise UnexpectedAnswer(f"the server sent a {cls.__name__} that cannot be read: {error!r}") from None
