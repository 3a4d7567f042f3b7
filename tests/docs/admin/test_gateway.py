"""The recipe of a gateway for agents, run as written."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
import requests

from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.engine.access.token_service import ATTEMPTS_AT_ONCE
from tests.docs.admin import SECONDS, page, two_machines
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, wait_until_ready
from tests.support.howto_pages import Recipe, account, exec_last, serving

PAGE = page("gateway")

pytestmark = pytest.mark.timeout(420)


@pytest.mark.needs("sandbox")
@only_in_full
def test_a_gateway_for_agents(tmp_path: Path) -> None:
    srv, port = tmp_path / "srv", free_port()
    recipe = Recipe(
        PAGE,
        None,
        {
            "/srv/agents": str(srv),
            "/opt/agents/bin": sysconfig.get_path("scripts"),
            "http://127.0.0.1:8888/": f"http://127.0.0.1:{port}/",
            "https://agents.example.org/": f"http://127.0.0.1:{port}/",
            "port = 8888": f"port = {port}",
        },
    )
    for name in ("jupyter_kernel_gateway_config.py", "policies.toml"):
        recipe.write(f"{srv}/{name}", srv / name)
    admin, agent = account(tmp_path / "admin"), tmp_path / "agent"
    steps = iter(recipe.steps())
    with two_machines({"admin": admin}, srv, account(agent), agent) as type_in:
        for _ in range(3):
            type_in(next(steps))
        start = f"{next(steps).line}\n{next(steps).line}"
        assert "\njupyter kernelgateway " in start
        assert_a_missing_token_stops_it(start, admin, srv)
        assert_a_mistake_in_a_policy_lets_no_code_run(start, admin, srv, port)
        with serving(start, admin, srv, port) as host:
            host.info.token = (srv / "owner.token").read_text().strip()
            wait_until_ready(host)
            for step in steps:
                type_in(step)
            assert_a_proxy_is_believed(host)
        events = [json.loads(line) for line in (srv / "audit.log").read_text().splitlines()]
        assert {"created", "rotated", "revoked"} <= {event["action"] for event in events}


def assert_a_missing_token_stops_it(start: str, env: Mapping[str, str], srv: Path) -> None:
    """Without the owner's token the gateway would let every caller in."""
    kept = (srv / "owner.token").rename(srv / "kept.token")
    command = ["bash", "-c", exec_last(start)]
    done = subprocess.run(command, env=dict(env), cwd=srv, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode not in (0, None), done.stderr
    kept.rename(srv / "owner.token")


def assert_a_mistake_in_a_policy_lets_no_code_run(start: str, env: Mapping[str, str], srv: Path, port: int) -> None:
    kept = (srv / "policies.toml").read_text()
    (srv / "policies.toml").write_text("[reporter]\nmax_sesions = 1\n")
    with serving(start, env, srv, port) as host:
        host.info.token = (srv / "owner.token").read_text().strip()
        wait_until_ready(host)
        answer = requests.get(f"{host.info.url}exec/v1/", headers=host.info.auth_headers, timeout=SECONDS)
        assert answer.status_code == 503
        assert "did you mean 'max_sessions'?" in answer.text
    (srv / "policies.toml").write_text(kept)


def assert_a_proxy_is_believed(host: Host) -> None:
    """Wrong tokens from one address behind the proxy hold up no other; the name that it passes on is ours."""

    def come_from(address: str, name: str = "agents.example.org") -> int:
        headers = {"X-Forwarded-For": address, "Host": name, "Authorization": f"Bearer {new_token().text}"}
        return requests.get(f"{host.info.url}exec/v1/", headers=headers, timeout=SECONDS).status_code

    assert [come_from("203.0.113.7") for _ in range(ATTEMPTS_AT_ONCE + 1)] == [401] * ATTEMPTS_AT_ONCE + [429]
    assert come_from("203.0.113.8") == 401
    assert come_from("203.0.113.8", "evil.example") == 403
