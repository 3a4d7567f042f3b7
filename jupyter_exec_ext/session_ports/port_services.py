"""Services for the handlers of sessions' ports: the registry of open ports, and the form of their host names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_server.auth.logout import LogoutHandler
from tornado.routing import Rule

from ..engine.engine import ExecEngine
from .port_host import PortHost, port_host_rule
from .port_registry import PortRegistry


@dataclass(frozen=True, slots=True)
class PortServices:
    """The open ports and their host names."""

    registry: PortRegistry
    host: PortHost
    rule: Rule


def port_services(engine: ExecEngine, *, is_hub: bool, provider: Any = None) -> PortServices:
    """Return the services of a host.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    is_hub : bool
        True if JupyterHub sends requests to this server.
    provider : IdentityProvider, optional
        Jupyter Server's; its logout ends what browsers may do, and its cookies reach no app.
    """
    registry = PortRegistry(engine)
    host = PortHost(engine.ports_host, is_hub=is_hub)
    if provider is not None:
        _follow_logouts(provider, registry.end_owners_passes)
    name = str(getattr(provider, "cookie_name", "") or "")
    rule = port_host_rule(host, engine, registry, lambda cookie: bool(name) and cookie.startswith(name))
    return PortServices(registry, host, rule)


def _follow_logouts(provider: Any, on_logout: Callable[[], None]) -> None:
    clear = provider.clear_login_cookie

    def clear_login_cookie(handler: Any) -> None:
        clear(handler)
        # Jupyter also clears a cookie that is not valid, and anybody may send one. Then no user is known yet, and the
        # property `current_user` fails.
        if isinstance(handler, LogoutHandler) and getattr(handler, "_current_user", None) is not None:
            on_logout()

    provider.clear_login_cookie = clear_login_cookie
