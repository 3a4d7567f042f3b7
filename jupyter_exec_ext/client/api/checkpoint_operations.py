"""Operations on the checkpoints of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...models import Checkpoint, RecordList, Session
from ...protocol.records_json import session_from_json
from ...protocol.view_json import checkpoint_from_json
from .answers import list_in, parsed
from .event_stream import API
from .request_exchange import exchange, segment
from .retries import DEFAULT_RETRY, RetryPolicy
from .steps import Operation, Request


@dataclass(frozen=True, slots=True)
class CheckpointsApi:
    """Operations on checkpoints.

    Parameters
    ----------
    session_id : str
        Id of the session.
    """

    session_id: str
    retry: RetryPolicy = DEFAULT_RETRY

    @property
    def _path(self) -> str:
        return f"{API}sessions/{segment(self.session_id)}"

    def _call(self, method: str, path: str, json: Any = None) -> Operation[Any]:
        return parsed((yield from exchange(Request(method, path, json), self.retry)))

    def make(self, name: str, *, force: bool) -> Operation[Checkpoint]:
        """Make a checkpoint."""
        body = {"name": name, "force": force}
        return checkpoint_from_json((yield from self._call("POST", f"{self._path}/checkpoints", body)))

    def list(self) -> Operation[RecordList[Checkpoint]]:
        """List the checkpoints, oldest first."""
        found = list_in((yield from self._call("GET", f"{self._path}/checkpoints")), "checkpoints")
        return RecordList(Checkpoint, [checkpoint_from_json(item) for item in found])

    def delete(self, checkpoint_id: str) -> Operation[None]:
        """Delete a checkpoint."""
        yield from self._call("DELETE", f"{self._path}/checkpoints/{segment(checkpoint_id)}")

    def branch(self, checkpoint_id: str | None, count: int, *, same_random: bool) -> Operation[Sequence[Session]]:
        """Make branches of the session."""
        body = {"checkpoint": checkpoint_id, "count": count, "same_random": same_random}
        found = list_in((yield from self._call("POST", f"{self._path}/branches", body)), "sessions")
        return [session_from_json(item) for item in found]

    def restore(self, checkpoint_id: str, *, same_random: bool) -> Operation[Session]:
        """Take the session back to a checkpoint."""
        body = {"checkpoint": checkpoint_id, "same_random": same_random}
        return session_from_json((yield from self._call("POST", f"{self._path}/restore", body)))


def id_of(checkpoint: Checkpoint | str) -> str:
    """Return the id of a checkpoint, given as a record or as the id itself."""
    return checkpoint if isinstance(checkpoint, str) else checkpoint.id
