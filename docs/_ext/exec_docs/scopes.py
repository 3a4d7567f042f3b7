"""The scopes, and what each of them opens."""

from __future__ import annotations

from jupyter_exec_ext.aca.endpoint.aca_handler import ACA_PREFIX
from jupyter_exec_ext.auth.scopes import SCOPES
from jupyter_exec_ext.server.routes import ACA_ROUTES, PREFIX, ROUTES

from .markdown import code, section, table

_ALL = [(PREFIX, ROUTES), (ACA_PREFIX, ACA_ROUTES)]


def scopes() -> str:
    """Return a section for each scope, with the requests that it opens, and one for the owner's own."""
    sections = [section(2, code(name), f"{text[0].upper()}{text[1:]}.", _opened(name)) for name, text in SCOPES.items()]
    return "".join([*sections, section(2, "For the owner alone", _requests(owners_alone()))])


def opened_by(name: str) -> list[str]:
    """Return the requests for which a token needs this scope, by itself, beside another or in the place of one."""
    return [
        f"{method} /{prefix}{route.path}"
        for prefix, routes in _ALL
        for route in routes
        for method, access in route.methods.items()
        if name in access.scopes.split()
    ]


def owners_alone() -> list[str]:
    """Return the requests for which no scoped token will do."""
    return [
        f"{method} /{prefix}{route.path}"
        for prefix, routes in _ALL
        for route in routes
        for method, access in route.methods.items()
        if access.owner_only
    ]


def _opened(name: str) -> str:
    return _requests(opened_by(name))


def _requests(requests: list[str]) -> str:
    return table(["request"], [[code(request)] for request in requests])
