"""Secrets: not in a kernel's environment; and the search for them everywhere else does find one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.support import canaries
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host


@pytest.mark.parametrize("name", ["server", "gateway", "hub"])
def test_a_kernels_environment_holds_no_secret(hosts: Any, name: str) -> None:
    host: Host = hosts[name]
    agent = mint(host)
    session_id = agent.session(env={"KERNEL_MINE": "mine"})
    pid = int(agent.run(session_id, "import os; os.getpid()").json()["outputs"][0]["data"]["text/plain"])
    environment = "\n".join(f"{key}={value}" for key, value in psutil.Process(pid).environ().items())
    assert "KERNEL_MINE=mine" in environment
    assert canaries.found_in(environment) == []
    assert canaries.found_in("\n".join(psutil.Process(pid).cmdline())) == []
    owner_of(host).call("DELETE", f"/sessions/{session_id}")


def test_a_secret_that_is_told_is_found(hosts: Any, tmp_path: Path) -> None:
    host: Host = hosts["server"]
    token = mint(host, ["sessions:read"]).token
    (tmp_path / "server.log").write_text(f"GET /exec/v1/?token={token}\n")
    (found,) = canaries.look_through(replace(host, home=tmp_path))
    assert found[0].endswith("server.log")
    answer = requests.Response()
    answer.request = requests.Request("GET", f"{host.info.url}exec/v1/sessions").prepare()
    answer._content = f'{{"message": "{token}"}}'.encode()
    with pytest.raises(AssertionError, match="tells a secret"):
        canaries.check_answer(answer)
