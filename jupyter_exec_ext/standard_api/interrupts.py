"""Interrupt of a kernel as clients of Jupyter's protocol know it: it also ends code that waits for approval."""

from __future__ import annotations

from ..auth.caller import Caller
from ..engine.engine import ExecEngine


async def interrupt_kernel(engine: ExecEngine, caller: Caller, session_id: str) -> None:
    """Interrupt a session's code, and cancel code that waits for approval.

    Clients of Jupyter's protocol have no other way to end what waits.
    """
    for execution in engine.approvals.list(caller):
        if execution.session_id == session_id:
            await engine.cancel(caller, execution.id)
    await engine.interrupt_session(caller, session_id)
