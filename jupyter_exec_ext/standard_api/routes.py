"""Route table of Jupyter's kernels API, at ``exec/jupyter/`` and, with `scoped_standard_api`, at a gateway's ``/``."""

from __future__ import annotations

import re
from typing import Any

from ..server.base_handler import ExecHandler, Services
from ..server.gate import Access
from ..server.rights import CONTROL_EXECUTIONS, CREATE_SESSION, DELETE_SESSIONS, READ, READ_EXECUTIONS, READ_SESSIONS
from .channels_handler import ChannelsHandler
from .client_registry import ClientRegistry
from .kernel_handlers import (
    KernelHandler,
    KernelInterruptHandler,
    KernelRestartHandler,
    KernelsHandler,
    KernelSpecHandler,
    KernelSpecsHandler,
    MeHandler,
    SpecHandler,
    StandardHandler,
    StatusHandler,
    VersionHandler,
)
from .session_handlers import StandardSessionHandler, StandardSessionsHandler

STANDARD_PREFIX = "exec/jupyter"
_PARAMETERS = {
    "{kernel_id}": r"(?P<kernel_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    "{name}": r"(?P<name>[\w.-]{1,100})",
}

#: Paths below ``api`` with the rights that each method needs. `incoming_messages` has the rights for messages.
STANDARD_ROUTES: tuple[tuple[str, type[StandardHandler], dict[str, Access]], ...] = (
    ("/", VersionHandler, {"GET": READ}),
    ("/spec.yaml", SpecHandler, {"GET": READ}),
    ("/status", StatusHandler, {"GET": READ_SESSIONS}),
    ("/me", MeHandler, {"GET": READ}),
    ("/kernelspecs", KernelSpecsHandler, {"GET": READ}),
    ("/kernelspecs/{name}", KernelSpecHandler, {"GET": READ}),
    ("/kernels", KernelsHandler, {"GET": READ_SESSIONS, "POST": CREATE_SESSION}),
    ("/kernels/{kernel_id}", KernelHandler, {"GET": READ_SESSIONS, "DELETE": DELETE_SESSIONS}),
    ("/kernels/{kernel_id}/interrupt", KernelInterruptHandler, {"POST": CONTROL_EXECUTIONS}),
    ("/kernels/{kernel_id}/restart", KernelRestartHandler, {"POST": CONTROL_EXECUTIONS}),
    ("/kernels/{kernel_id}/channels", ChannelsHandler, {"GET": READ_EXECUTIONS}),
    ("/sessions", StandardSessionsHandler, {"GET": READ_SESSIONS, "POST": CREATE_SESSION}),
    (
        "/sessions/{kernel_id}",
        StandardSessionHandler,
        {"GET": READ_SESSIONS, "PATCH": CREATE_SESSION, "DELETE": DELETE_SESSIONS},
    ),
)


def _pattern(path: str) -> str:
    pattern = re.escape(path.rstrip("/"))
    for name, characters in _PARAMETERS.items():
        pattern = pattern.replace(re.escape(name), characters)
    return pattern if "{" in path else f"{pattern}/?"


def standard_rules(
    services: Services, clients: ClientRegistry, prefix: str = f"/{STANDARD_PREFIX}"
) -> list[tuple[str, type[ExecHandler], dict[str, Any]]]:
    """Return the routes as Tornado's rules.

    Parameters
    ----------
    services : Services
        Services of the handlers.
    clients : ClientRegistry
        Registry of kernels' clients.
    prefix : str
        Path in front of ``/api``.

    Returns
    -------
    list
        Rules for Tornado's application.
    """
    return [
        (f"{prefix}/api{_pattern(path)}", handler, {"services": services, "access": access, "clients": clients})
        for path, handler, access in STANDARD_ROUTES
    ]
