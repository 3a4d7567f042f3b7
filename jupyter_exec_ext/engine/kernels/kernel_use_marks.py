"""Marks of used kernels in Jupyter's own API: connections, and Jupyter sessions of type ``exec``.

A session has no WebSocket, by which Jupyter tells used kernels from unused ones. So JupyterLab's "Shut Down Unused"
would end the kernels of all sessions, busy ones included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from jupyter_client.manager import KernelManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_core.utils import ensure_async
from traitlets import TraitError

#: Type of the server sessions that stand for sessions.
SERVER_SESSION_TYPE = "exec"


class KernelUseMarks:
    """Uses of a host's kernels. Each has a user, which is any object, and ends once however often `end` is called.

    Only the records that the host sends count a session as a connection. By the manager's own number, Jupyter Server
    decides whether to keep output for a notebook that lost its connection, and whether to cull the kernel. Both go on
    as without the session.

    Parameters
    ----------
    manager : MultiKernelManager
        The host's. One without records for the API, as outside a server, is left alone.
    server_sessions : optional
        The host's session manager.
    """

    def __init__(self, manager: MultiKernelManager, server_sessions: Any = None) -> None:
        self._manager: Any = manager
        self._server_sessions = server_sessions
        self._log: logging.Logger | logging.LoggerAdapter[Any] = manager.log
        # By kernel and user, the id of the server session; empty without one.
        self._uses: dict[str, dict[object, str]] = {}
        if hasattr(self._manager, "kernel_model"):
            self._stock_model: Callable[[str], dict[str, Any]] = self._manager.kernel_model
            self._manager.kernel_model = self._kernel_model

    def _kernel_model(self, kernel_id: str) -> dict[str, Any]:
        try:
            model = self._stock_model(kernel_id)
        except TraitError as error:
            # Jupyter Server sets `last_activity` only after the start. A KeyError leaves the kernel out of the list;
            # the other error fails the request, and kernels for later sessions start at any time.
            raise KeyError(f"the kernel {kernel_id} is still starting") from error
        model["connections"] = model.get("connections", 0) + len(self._uses.get(kernel_id, ()))
        return model

    def begin(self, kernel_id: str, user: object) -> None:
        """Count the kernel as used."""
        self._uses.setdefault(kernel_id, {}).setdefault(user, "")

    async def list_as(self, kernel_id: str, user: object, session_id: str, name: str) -> None:
        """List a use among the server sessions, if it has begun and is not listed."""
        uses = self._uses.get(kernel_id, {})
        if self._server_sessions is None or uses.get(user) != "":
            return
        # The colon keeps the path from being that of a file.
        path = f"{SERVER_SESSION_TYPE}:{session_id}"
        with self._tolerating("list"):
            uses[user] = self._server_sessions.new_session_id()
            saving = self._server_sessions.save_session(
                uses[user], path=path, name=name, type=SERVER_SESSION_TYPE, kernel_id=kernel_id
            )
            await ensure_async(saving)

    def end(self, kernel_id: str, user: object) -> None:
        """Count the kernel as unused by this user, and remove the server session."""
        uses = self._uses.get(kernel_id, {})
        server_session_id = uses.pop(user, "")
        if not uses:
            self._uses.pop(kernel_id, None)
        if server_session_id:
            with self._tolerating("remove"):
                self._remove(server_session_id, kernel_id)

    def _remove(self, server_session_id: str, kernel_id: str) -> None:
        """Remove a server session, unless a client has given it another kernel.

        The managers have no method that leaves the kernel running, so this does what they do once a kernel is gone.
        """
        cursor = getattr(self._server_sessions, "cursor", None)
        if cursor is not None:
            cursor.execute("DELETE FROM session WHERE session_id=? AND kernel_id=?", (server_session_id, kernel_id))
            return
        rows = getattr(self._server_sessions, "_sessions", [])  # of Kernel Gateway's manager
        ours = (server_session_id, kernel_id)
        rows[:] = [row for row in rows if (row["session_id"], row["kernel_id"]) != ours]

    @contextmanager
    def _tolerating(self, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception:  # of any session manager; sessions work without it
            self._log.exception("could not %s the server session of a session", verb)

    def removal_reason(self, kernel: KernelManager) -> str:
        """Return the reason for which another client has probably shut a kernel down."""
        limit = getattr(self._manager, "cull_idle_timeout", 0)
        active_at = getattr(kernel, "last_activity", None)
        if limit > 0 and active_at is not None:
            spec = kernel.kernel_spec
            limit = (spec.metadata if spec is not None else {}).get("cull_idle_timeout", limit)
            idle_seconds = (datetime.now(timezone.utc) - active_at).total_seconds()
            if idle_seconds > limit:
                return f"its kernel was shut down, idle for {idle_seconds:.0f} s (cull_idle_timeout is {limit} s)"
        return "its kernel was shut down outside the session"
