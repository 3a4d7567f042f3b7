"""Mounts and devices of policies in sandboxed sessions of both hosts: visible as granted, and nothing else."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host, running_host

pytestmark = pytest.mark.needs("sandbox")
_CGROUPS_V1 = Path("/sys/fs/cgroup/devices")
_ZERO = (1, 5)
# Of each sandbox; the granted node has the number of /dev/zero.
_NUMBERS = ("1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:2", "136:*")
_LOOK = """
import json, os
def attempt(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__
print(json.dumps({
    "read": attempt(lambda: open("/data/table.csv").read()),
    "write": attempt(lambda: open("/data/new", "w").write("x")),
    "append": attempt(lambda: open("/data/table.csv", "a").write("x")),
    "secret": attempt(lambda: open("/data/link-to-secret").read()),
    "above": attempt(lambda: open(%r).read()),
    "work": attempt(lambda: open("mine", "w").write("x")),
}))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file, a link to a secret beside it, and a link to the directory."""
    home = tmp_path_factory.mktemp("shared")
    (home / "datasets").mkdir()
    (home / "datasets" / "table.csv").write_text("a,b")
    (home / "secret").write_text("secret")
    (home / "datasets" / "link-to-secret").symlink_to(home / "secret")
    (home / "link").symlink_to(home / "datasets")
    return home


@pytest.fixture(scope="module", params=["server", "gateway"])
def granting(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home, stored, listed = (tmp_path_factory.mktemp(name) for name in ("granting", "stored", "listed"))
    (listed / "policies.json").write_text("{}")
    policies = {
        "data": {"isolation": "sandbox", "mounts": {"/data": str(shared / "link")}},
        "plain": {"isolation": "sandbox"},
        "missing": {"isolation": "sandbox", "mounts": {"/data": str(shared / "none")}},
        "state": {"isolation": "sandbox", "mounts": {"/data": str(home)}},
        "store": {"isolation": "sandbox", "mounts": {"/data": str(stored)}},
        "in-store": {"isolation": "sandbox", "mounts": {"/data": str(stored / "store" / "logs")}},
        "policies": {"isolation": "sandbox", "mounts": {"/data": str(listed)}},
        "no-device": {"isolation": "sandbox", "devices": ["/dev/jex-none"]},
    }
    options = [f"--ExecEngine.policies={json.dumps(policies)}", "--ExecEngine.pool_size=1"]
    options += [f"--ExecEngine.policy_file={listed}/policies.json", f"--ExecStore.path={stored}/store"]
    with running_host(request.param, home, *options) as host:
        yield host


def _look(bearer: Bearer, shared: Path) -> dict[str, object]:
    session = bearer.session()
    answer = bearer.run(session, _LOOK % str(shared / "datasets" / "table.csv")).json()
    bearer.call("DELETE", f"/sessions/{session}")
    seen: dict[str, object] = json.loads(answer["stdout"])
    return seen


def test_mounted_directory_is_read_and_not_written(granting: Host, shared: Path) -> None:
    agent, other = mint(granting, policy="data"), mint(granting, policy="plain")
    seen = {
        "read": "a,b",
        "write": "OSError",
        "append": "OSError",
        "secret": "FileNotFoundError",
        "above": "FileNotFoundError",
        "work": 1,
    }
    assert _look(agent, shared) == seen
    # The pool has kernels of both kinds by now; each session gets one of its own kind.
    for _ in range(2):
        assert _look(other, shared)["read"] == "FileNotFoundError"
        assert _look(agent, shared) == seen
    assert not (shared / "datasets" / "new").exists()


def test_mount_outlives_a_restart_and_can_be_narrowed_away(granting: Host, shared: Path) -> None:
    agent = mint(granting, policy="data")
    session = agent.session()
    assert agent.call("POST", f"/sessions/{session}/restart").status_code == 200
    assert agent.run(session, "print(open('/data/table.csv').read())").json()["stdout"] == "a,b\n"
    assert _look(mint(granting, policy="data", mounts={}), shared)["read"] == "FileNotFoundError"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("missing", "is not there; create it"),
        ("state", "cannot be shared, since it holds"),
        ("store", "cannot be shared, since it holds"),
        ("in-store", "cannot be shared, since it is a part of"),
        ("policies", "cannot be shared, since it holds"),
        ("no-device", "devices: /dev/jex-none is not on this machine"),
    ],
)
def test_session_whose_grant_cannot_be_given_does_not_start(granting: Host, policy: str, reason: str) -> None:
    answer = mint(granting, policy=policy).call("POST", "/sessions", json={})
    assert answer.status_code >= 400 and reason in answer.json()["message"], answer.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")
def test_exactly_the_granted_devices_are_visible(tmp_path: Path) -> None:
    granted, hidden = (Path(f"/dev/jex-test-{os.getpid()}-{name}") for name in ("granted", "hidden"))
    common = "os.listdir('/dev')"
    code = f"""
import json, os
def attempt(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__
print(json.dumps([sorted({common}), attempt(lambda: open({str(granted)!r}, "rb").read(3).hex()),
    attempt(lambda: open({str(hidden)!r}, "rb").read(3).hex()),
    attempt(lambda: os.mknod("/tmp/made", 0o20600, os.makedev(1, 5))), attempt(lambda: os.unlink({str(granted)!r}))]))
"""
    policies = {
        "gpu": {"isolation": "sandbox", "devices": [str(granted)]},
        "plain": {"isolation": "sandbox"},
    }
    try:
        for node in (granted, hidden):
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(*_ZERO))
        with running_host("server", tmp_path, f"--ExecEngine.policies={json.dumps(policies)}") as host:
            seen = {}
            for policy in policies:
                agent = mint(host, policy=policy)
                session = agent.session()
                seen[policy] = json.loads(agent.run(session, code).json()["stdout"])
                if policy == "gpu" and _CGROUPS_V1.is_dir():
                    lists = [set(each.read_text().splitlines()) for each in _CGROUPS_V1.rglob("jex-*/devices.list")]
                    allowed = {f"c {number} rwm" for number in _NUMBERS}
                    assert allowed in lists
        assert set(seen["gpu"][0]) - set(seen["plain"][0]) == {granted.name}
        assert seen["gpu"][1:] == ["000000", "FileNotFoundError", "PermissionError", "OSError"]
        assert seen["plain"][1:3] == ["FileNotFoundError", "FileNotFoundError"]
    finally:
        for node in (granted, hidden):
            node.unlink(missing_ok=True)
