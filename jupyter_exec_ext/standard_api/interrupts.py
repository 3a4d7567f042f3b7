"""Kernel interrupt for clients of Jupyter's protocol, which also cancels code that waits for approval."""

from __future__ import annotations

from ..auth.caller import Caller
from ..engine.engine import ExecEngine


async def interrupt_kernel(engine: ExecEngine, caller: Caller, session_id: str) -> None:
    """Interrupt a session's code, and cancel code that waits for approval.

    Clients of Jupyter's protocol have no other request that cancels such code.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    caller : Caller
        Sender of the request.
    session_id : str
        Id of the session.

    Raises
    ------
    ExecError
        If the session does not exist, or the caller may not interrupt it.
    """
    for execution in engine.approvals.list(caller):
        if execution.session_id == session_id:
            await engine.cancel(caller, execution.id)
    await engine.interrupt_session(caller, session_id)
