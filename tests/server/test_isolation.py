"""Who gets how isolated a kernel, on both hosts: by the request, the policy and the server's own rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.engine.kernels import process_limits
from jupyter_exec_ext.engine.sessions import session_networks, session_packages
from jupyter_exec_ext.errors import IsolationRequired
from jupyter_exec_ext.isolation.common import launch_request
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import CANARY, Host, running_host
from tests.support.sandbox_leftovers import SEEN, WORK

POLICIES = {
    "boxed": {"base": "trusted", "isolation": "sandbox"},
    "small": {"isolation": "sandbox", "max_memory_bytes": 3 * 1024**3, "max_cpu_seconds": 77},
    "far": {"isolation": "remote"},
}
LOOK = "import json, os; print(json.dumps([os.getcwd(), sorted(os.listdir('/')), dict(os.environ)]))"


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("isolation")
    with running_host(
        request.param, home, f"--ExecEngine.policies={json.dumps(POLICIES)}", "--ExecEngine.default_isolation=none"
    ) as host:
        yield host


def seen(by: Bearer, **request: Any) -> tuple[str, str, list[str], dict[str, str]]:
    """Create a session and look around in it: isolation, directory, what is in the root, and the environment."""
    created = by.call("POST", "/sessions", json=request)
    assert created.status_code == 201, created.text
    session = created.json()
    done = by.run(session["id"], LOOK).json()
    assert done["isolation"] == session["isolation"]
    by.call("DELETE", f"/sessions/{session['id']}")
    return (session["isolation"], *json.loads(done["stdout"]))


@pytest.mark.needs("sandbox")
def test_plots_are_drawn_in_plain_kernels_alone(host: Host) -> None:
    code = (
        "import os\nshell = get_ipython()\n"
        "print(os.environ['NO_COLOR'], shell.display_pub.publish.__name__, shell.display_formatter.format.__name__)"
    )
    with ExecClient(host.info) as client:
        with client.session(isolation="none") as session:
            assert session.run(code).stdout == "1 publish format\n"
            assert session.run("print(hasattr(shell.display_pub.publish, '__wrapped__'))").stdout == "True\n"
        with client.session(isolation="sandbox") as session:
            assert session.run(code).stdout == "1 publish format\n"
            assert session.run("print(hasattr(shell.display_pub.publish, '__wrapped__'))").stdout == "False\n"


@pytest.mark.needs("sandbox")
def test_the_owner_gets_a_plain_kernel_or_the_isolation_that_is_asked_for(host: Host) -> None:
    owner = owner_of(host)
    isolation, directory, _, environ = seen(owner)
    assert (isolation, directory != WORK) == ("none", True)
    assert CANARY not in environ.values()
    isolation, directory, root, environ = seen(owner, isolation="sandbox", env={"KERNEL_MINE": "1"})
    assert (isolation, directory) == ("sandbox", WORK)
    hidden = {"sys", "boot", "srv", "var", "run"} - {Path(seen).parts[1] for seen in SEEN}
    assert not hidden & set(root)
    with ExecClient(host.info) as client, client.session(isolation="sandbox") as session:
        session.run("open('mine', 'w').close()")
        assert (
            session.run("import os; print(os.listdir('/mnt'), os.listdir('/mnt/data'))").stdout == "['data'] ['mine']\n"
        )
    assert environ["KERNEL_MINE"] == "1"
    assert CANARY not in environ.values()


@pytest.mark.needs("sandbox")
def test_programs_and_devices_can_be_used_in_a_sandbox(host: Host) -> None:
    code = (
        "import os, subprocess as s; open('/dev/null', 'w').write('x'); print(len(open('/dev/urandom', 'rb').read(9)), "
        "s.run(['cat'], stdin=s.DEVNULL, stderr=s.DEVNULL).returncode, s.getoutput('echo a | tr a b'))"
    )
    with ExecClient(host.info) as client, client.session(isolation="sandbox") as session:
        assert session.run(code).stdout == "9 0 b\n"


@pytest.mark.needs("sandbox")
def test_a_scoped_token_gets_a_sandbox_by_itself(host: Host) -> None:
    bearer = mint(host, policy="trusted")
    info = bearer.call("GET", "/").json()
    assert {spec["isolation"] for spec in info["kernelspecs"]} == {"sandbox"}
    assert seen(bearer)[:2] == ("sandbox", WORK)
    assert {spec["isolation"] for spec in owner_of(host).call("GET", "/").json()["kernelspecs"]} == {"none"}


@pytest.mark.needs("sandbox")
def test_a_policy_gets_the_isolation_that_it_requires_and_its_limits_hold_inside(host: Host) -> None:
    bearer = mint(host, policy="small")
    session = bearer.session()
    code = (
        "import resource as r; print(r.getrlimit(r.RLIMIT_AS), r.getrlimit(r.RLIMIT_CPU), r.getrlimit(r.RLIMIT_CORE))"
    )
    limit = 3 * 1024**3
    assert bearer.run(session, code).json()["stdout"] == f"({limit}, {limit}) (77, 78) (0, 0)\n"
    assert not any("JUPYTER_EXEC_MAX" in name for name in seen(bearer)[3])
    bearer.call("DELETE", f"/sessions/{session}")


def test_names_by_which_limits_travel_are_the_same_on_both_sides() -> None:
    assert (process_limits.MEMORY_VARIABLE, process_limits.CPU_VARIABLE) == (
        launch_request.MEMORY_VARIABLE,
        launch_request.CPU_VARIABLE,
    )
    assert session_networks.NETWORK_VARIABLE == launch_request.NETWORK_VARIABLE
    assert session_packages.READABLE_VARIABLE == launch_request.READABLE_VARIABLE


def test_more_than_there_is_is_refused_and_the_reason_told(host: Host) -> None:
    for by in (owner_of(host), mint(host)):
        answer = by.call("POST", "/sessions", json={"isolation": "remote"})
        assert (answer.status_code, answer.json()["code"]) == (403, "isolation_required")
        assert "'remote'" in answer.json()["message"]
    answer = mint(host, policy="far").call("POST", "/sessions", json={})
    assert answer.json()["code"] == "isolation_required"
    assert answer.json()["limit"] == {"policy": "far", "name": "isolation", "value": "remote"}
    answer = owner_of(host).call("POST", "/sessions", json={"isolation": "strong"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.needs("sandbox")
def test_the_trail_has_the_isolation_of_each_session_and_execution(host: Host) -> None:
    with ExecClient(host.info) as client, client.session(isolation="sandbox") as session:
        execution = session.run("1")
    with closing(AuditReader(host.home / "jupyter_data_dir" / "jupyter_exec_ext")) as trail:
        records = [line.record() for line in trail.newest(1000)]
    found = {(record.action, record.subject): record.data.get("isolation") for record in records}
    assert found["created", session.id] == "sandbox"
    assert found["accepted", execution.id] == "sandbox"


def test_a_running_kernel_is_attached_to_with_the_isolation_that_it_has(host: Host) -> None:
    bearer = mint(host, policy="boxed")
    with ExecClient(host.info) as owner, owner.standard_session() as notebook:
        answer = bearer.call("POST", "/sessions", json={"kernel_id": str(notebook.id)})
        assert answer.json()["code"] == "isolation_required"


@pytest.mark.needs("sandbox")
def test_where_every_kernel_is_to_be_isolated_the_owners_is_too(tmp_path: Path) -> None:
    with running_host("server", tmp_path, "--ExecEngine.default_isolation=sandbox") as host:
        assert seen(owner_of(host))[:2] == ("sandbox", WORK)
        with ExecClient(host.info) as client, pytest.raises(IsolationRequired):
            client.session(isolation="remote")


@pytest.mark.needs("sandbox")
def test_tokens_may_use_plain_kernels_where_the_administrator_says_so(tmp_path: Path) -> None:
    with running_host("server", tmp_path, UNPROTECTED) as host:
        assert seen(mint(host))[0] == "none"
        assert seen(mint(host), isolation="sandbox")[0] == "sandbox"
