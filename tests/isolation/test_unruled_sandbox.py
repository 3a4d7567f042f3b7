"""A sandboxed session without network rules: no proxy process, no listener and no variables of a proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psutil
import pytest

from jupyter_exec_ext.isolation.sandbox.proxy_environment import PROXY_PORT
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host, running_host

pytestmark = pytest.mark.needs("sandbox")
_POLICIES = {
    "plain": {"isolation": "sandbox"},
    "ruled": {"isolation": "sandbox", "network": ["a.example"]},
}
# Sockets that listen (state 0A) at the proxy's port, and the variables that lead programs to it.
_LOOK = f"""
import json, os
tcp = [line.split() for name in ("tcp", "tcp6") for line in open("/proc/net/" + name).readlines()[1:]]
listening = [line for line in tcp if line[3] == "0A" and line[1].endswith(":{PROXY_PORT:04X}")]
print(json.dumps([len(listening), sorted(name for name in os.environ if "PROXY" in name.upper())]))
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    options = [f"--ExecEngine.policies={json.dumps(_POLICIES)}", "--ExecEngine.pool_size=0"]
    with running_host("server", tmp_path_factory.mktemp("unruled"), *options) as host:
        yield host


def _held(host: Host, policy: str) -> tuple[int, int, list[object]]:
    """Return the server's processes below it, its descriptors, and what a session of the policy sees."""
    agent = mint(host, policy=policy)
    session = agent.session()
    seen = json.loads(agent.run(session, _LOOK).json()["stdout"])
    server = psutil.Process(host.process.pid)
    counts = len(server.children(recursive=True)), server.num_fds()
    agent.call("DELETE", f"/sessions/{session}")
    return (*counts, seen)


def test_session_without_rules_adds_no_process_listener_or_descriptor(host: Host) -> None:
    # Before a session with rules, and beside the proxy that it has started.
    session = owner_of(host).session(isolation="sandbox")
    owner_of(host).call("DELETE", f"/sessions/{session}")
    processes, descriptors, seen = _held(host, "plain")
    assert (processes, seen) == (3, [0, []])  # bubblewrap, its first process, and the kernel
    ruled_processes, ruled_descriptors, ruled_seen = _held(host, "ruled")
    assert ruled_processes == processes + 1 and ruled_seen[0] == 1 and ruled_seen[1]
    assert ruled_descriptors > descriptors
