"""A Hub's culler takes a user's server once its sessions are idle, and not before."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.support.bearers import UNPROTECTED, owner_of
from tests.support.full import only_in_full
from tests.support.hubs import USER, running_hub

RUN_SECONDS = 20
CULL_SECONDS = 6
_COMMAND = [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={CULL_SECONDS}", "--cull-every=1"]
RECIPE = f"""
c.JupyterHub.services.append({{"name": "culler", "command": {_COMMAND!r}}})
c.JupyterHub.load_roles.append(
    {{
        "name": "culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["culler"],
    }}
)
"""
pytestmark = [pytest.mark.needs("configurable-http-proxy"), only_in_full]


def test_hub_culls_a_server_whose_sessions_are_idle_and_none_that_runs_code(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(RECIPE)
    with running_hub(tmp_path, UNPROTECTED, env={"JUPYTERHUB_ACTIVITY_INTERVAL": "1"}, recipe=recipe) as hub:
        agent = owner_of(hub)
        session_id = agent.session()
        code = f"import time; time.sleep({RUN_SECONDS})"
        began_at = time.monotonic()
        # Nothing of the run comes through the proxy, which would count as activity.
        run = agent.call(
            "POST",
            f"/sessions/{session_id}/executions",
            json={"code": code},
            headers={"Prefer": "respond-async, return=minimal"},
        )
        assert run.status_code == 202, run.text
        while hub.api("GET", f"/users/{USER}")["servers"]:
            assert time.monotonic() < began_at + RUN_SECONDS + 60, "the session's kernel keeps the server"
            time.sleep(0.2)
        assert time.monotonic() > began_at + RUN_SECONDS
