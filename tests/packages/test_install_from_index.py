"""Packages from an index: typed through the egress proxy by `@packages`, and by the server's own download."""

from __future__ import annotations

import functools
import http.server
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.bearers import Bearer, mint
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host
from tests.support.wheels import make_wheel

pytestmark = [only_in_full, pytest.mark.needs("sandbox")]
_POLICY = {"base": "trusted", "isolation": "sandbox", "packages": "install"}
_POLICIES = {"ruled": {**_POLICY, "network": ["@packages"]}, "closed": _POLICY}


def own_address() -> str:
    """Return an address of this machine that is not its loopback: programs go there through the proxy."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an index with `typed` and `asked`."""
    root = tmp_path_factory.mktemp("index")
    for name in ("typed", "asked"):
        make_wheel(root / "simple" / name, name)  # the server lists a directory as an index lists a project
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=root)
    with http.server.ThreadingHTTPServer((own_address(), 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{server.server_address[0]!s}:{server.server_port}/simple"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def host(index: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("index-host")
    settings = home / "pip.conf"
    settings.write_text(f"[global]\nindex-url = {index.replace('//', '//user:pass-word@')}\n")
    env = {"PIP_CONFIG_FILE": str(settings), "PIP_TRUSTED_HOST": index.split("/")[2].rpartition(":")[0]}
    options = [f"--ExecEngine.policies={json.dumps(_POLICIES)}", "--ExecEngine.package_wheelhouse="]
    with running_host("server", home, *options, env=env) as host:
        yield host


@pytest.fixture(scope="module")
def agent(host: Host) -> Bearer:
    return mint(host, policy="ruled")


@pytest.mark.parametrize("command", ["!pip install typed", "%pip install typed", "!uv pip install typed"])
def test_typed_installation_goes_through_the_rules_of_packages(agent: Bearer, index: str, command: str) -> None:
    session = agent.session()
    done = agent.run(session, command).json()
    assert agent.run(session, "import typed; print(typed.version)").json()["stdout"] == "1.0\n", done
    network = agent.call("GET", f"/sessions/{session}/network").json()
    assert network["rules"] == [index.split("/")[2]]
    assert {request["verdict"] for request in network["requests"]} == {"allowed"}
    shown = agent.run(session, "import os; print(dict(os.environ))").json()["stdout"]
    assert index in shown
    assert "pass-word" not in shown
    agent.call("DELETE", f"/sessions/{session}")


def test_server_downloads_for_a_session_without_a_network(host: Host) -> None:
    closed = mint(host, policy="closed")
    session = closed.session()
    answer = closed.call("POST", f"/sessions/{session}/packages", json={"packages": ["asked"]})
    assert answer.json()["state"] == "ok", answer.text
    # What the cache has needs no network either.
    other = closed.session()
    assert "Successfully installed asked-1.0" in closed.run(other, "!pip install --no-index asked").json()["stdout"]
