from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_exec_ext.auth.scopes import ALL_SCOPES, SCOPES, require_scope
from jupyter_exec_ext.server.routes import ROUTES


def test_a_known_scope_is_itself() -> None:
    for name in SCOPES:
        assert require_scope(name) == name
    assert frozenset(SCOPES) == ALL_SCOPES


@pytest.mark.parametrize("name", ["session:read", "", "sessions:READ", "*", "sessions:*", "sessions:read "])
def test_a_misspelt_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no scope"):
        require_scope(name)


def test_a_route_with_a_misspelt_scope_fails_at_import() -> None:
    """The table of routes is built when it is imported, so no server starts with a hole in it."""
    code = (
        "from jupyter_exec_ext.auth import scopes\n"
        "del scopes.SCOPES['files:write']\n"  # as if the table had misspelt it
        "import jupyter_exec_ext.server.routes\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode != 0
    assert "no scope 'files:write'" in run.stderr


def test_every_route_names_a_scope_or_is_open_for_a_reason() -> None:
    """What needs no scope is what everybody may know who may come in at all, and what is the owner's alone."""
    without = {
        (route.path, method)
        for route in ROUTES
        for method, access in route.methods.items()
        if access.scope is None and not access.owner_only
    }
    assert without == {("/", "GET"), ("/openapi.yaml", "GET")}
