"""Routes of Jupyter's standard API, below ``exec/jupyter/`` and, at a gateway that is asked to, at ``/``."""

from __future__ import annotations

from typing import Any

from ..server.base_handler import ExecHandler, Services
from ..server.gate import Access
from ..server.rights import CONTROL_EXECUTIONS, CREATE_SESSION, DELETE_SESSIONS, READ, READ_EXECUTIONS, READ_SESSIONS
from .channels_handler import ChannelsHandler
from .client_registry import ClientRegistry
from .kernel_handlers import (
    KernelActionHandler,
    KernelHandler,
    KernelsHandler,
    KernelSpecHandler,
    KernelSpecsHandler,
    MeHandler,
    StandardHandler,
    StandardSessionHandler,
    StandardSessionsHandler,
    StatusHandler,
    VersionHandler,
)

STANDARD_PREFIX = "exec/jupyter"
_KERNEL = r"(?P<kernel_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"

#: Paths below ``api``, as patterns, with the rights of each method. Messages need more: see `incoming_messages`.
STANDARD_ROUTES: tuple[tuple[str, type[StandardHandler], dict[str, Access]], ...] = (
    ("/?", VersionHandler, {"GET": READ}),
    ("/status", StatusHandler, {"GET": READ_SESSIONS}),
    ("/me", MeHandler, {"GET": READ}),
    ("/kernelspecs", KernelSpecsHandler, {"GET": READ}),
    (r"/kernelspecs/(?P<name>[\w.-]{1,100})", KernelSpecHandler, {"GET": READ}),
    ("/kernels/?", KernelsHandler, {"GET": READ_SESSIONS, "POST": CREATE_SESSION}),
    (f"/kernels/{_KERNEL}", KernelHandler, {"GET": READ_SESSIONS, "DELETE": DELETE_SESSIONS}),
    (f"/kernels/{_KERNEL}/(?P<action>interrupt|restart)", KernelActionHandler, {"POST": CONTROL_EXECUTIONS}),
    (f"/kernels/{_KERNEL}/channels", ChannelsHandler, {"GET": READ_EXECUTIONS}),
    ("/sessions/?", StandardSessionsHandler, {"GET": READ_SESSIONS, "POST": CREATE_SESSION}),
    (f"/sessions/{_KERNEL}", StandardSessionHandler, {"GET": READ_SESSIONS, "DELETE": DELETE_SESSIONS}),
)


def standard_rules(
    services: Services, clients: ClientRegistry, prefix: str = f"/{STANDARD_PREFIX}"
) -> list[tuple[str, type[ExecHandler], dict[str, Any]]]:
    """Return the routes as Tornado's rules below a path."""
    return [
        (f"{prefix}/api{path}", handler, {"services": services, "access": access, "clients": clients})
        for path, handler, access in STANDARD_ROUTES
    ]
