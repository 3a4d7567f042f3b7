"""A store with many executions in ended sessions, and texts planted among them, as a server has it after some days."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from jupyter_exec_ext.auth.caller import OWNER
from jupyter_exec_ext.models import ErrorInfo, Execution, ExecutionState, Session, SessionState, StateEvent, StreamEvent
from jupyter_exec_ext.protocol.records_json import utc_timestamp
from jupyter_exec_ext.store.database import Database
from jupyter_exec_ext.store.store import ExecStore

PLANTED = 20
#: Begins every code, so that it is the text that most executions have.
COMMON = "import pandas"
_LINES = [line for path in sorted(Path(__file__).parent.glob("*.py")) for line in path.read_text().splitlines() if line]
_OPEN_SECONDS = 3 * 86_400.0


@contextmanager
def _without_syncs() -> Iterator[None]:
    """Write without waiting for the disk: a power failure during a test costs nothing."""
    sync, Database.sync = Database.sync, lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Database.sync = sync  # type: ignore[method-assign]


async def fill_store(directory: Path, count: int, sessions: int) -> dict[str, str]:
    """Fill a store; return the planted texts with the ids of their executions."""
    with _without_syncs():
        return await _fill(directory, count, sessions)


async def _fill(directory: Path, count: int, sessions: int) -> dict[str, str]:
    chance = random.Random(32)
    planted: dict[str, str] = {}
    store = ExecStore(path=str(directory))
    began = time.time() - _OPEN_SECONDS
    for number in range(sessions):
        at = utc_timestamp(began + number)
        await store.sessions.add(
            Session(
                f"ses_{number:024}", OWNER, "python3", "python", SessionState.ENDED, at, at, name=f"past-{number:03}"
            )
        )
    places = set(range(count // (2 * PLANTED), count, count // PLANTED))
    for number in range(count):
        text = f"planted-{secrets.token_hex(8)}" if number in places else ""
        if text:
            planted[text] = f"exe_{number:024}"
        in_code, in_output, in_error = (text if number % 3 == place else "" for place in range(3))
        code = "\n".join([f"{COMMON} as pd  # {in_code}", *chance.choices(_LINES, k=8)])
        stdout = "\n".join([*chance.choices(_LINES, k=12), in_output])
        at = utc_timestamp(began + number * _OPEN_SECONDS / count)
        execution = Execution(
            f"exe_{number:024}", f"ses_{number % sessions:024}", ExecutionState.QUEUED, code, at, outputs=[]
        )
        log = await store.executions.accept(execution, OWNER, None)
        assert not hasattr(log, "execution")
        log.append(StateEvent(ExecutionState.RUNNING))
        log.append(StreamEvent("stdout", stdout))
        error = ErrorInfo("KeyError", in_error, "…") if in_error else None
        state = ExecutionState.ERROR if error else ExecutionState.OK
        await store.executions.finish(
            replace(execution, state=state, stdout=stdout, error=error, started_at=at, finished_at=at), OWNER, log
        )
    await asyncio.to_thread(store.close)
    return planted
