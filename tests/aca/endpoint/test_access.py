"""Who may call what of the endpoint for ACA clients: every route with every kind of credentials, on every host.

The cells come from the route table. What each must answer is worked out from the table alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES, SCOPES
from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.server.gate import Access
from jupyter_exec_ext.server.routes import ACA_ROUTES
from tests.server.test_access import AUTHORIZER
from tests.server.test_matrix import from_elsewhere
from tests.support.bearers import UNPROTECTED, mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.pool_clients import ENVELOPE, Pool, error_of, pool_of

pytestmark = pytest.mark.every_place  # who may do what is held everywhere, in every commit


@dataclass(frozen=True)
class Cell:
    path: str
    method: str
    access: Access

    @property
    def makes_a_session(self) -> bool:
        """Whether the request makes the session if it is not there."""
        return self.method == "POST" and not self.path.startswith("/.management")


CELLS = [Cell(route.path, method, access) for route in ACA_ROUTES for method, access in route.methods.items()]


def send(pool: Pool, cell: Cell, run_id: str = "exe_x") -> requests.Response:
    """Send what the route is for, from an address whose budget for wrong tokens is not used up."""
    operation = cell.path.lstrip("/").replace("{execution_id}", run_id).replace("{path}", "a.txt")
    options: dict[str, Any] = {}
    if "files" in operation and cell.method == "POST":
        options["files"] = {"file": ("a.txt", b"x")}
    elif cell.method == "POST":
        options["json"] = {"code": "1"} if operation == "executions" else {"properties": {"code": "1"}}
    with requests.Session() as session:
        session.mount("http://", from_elsewhere())
        headers = {} if pool.token is None else {"Authorization": f"Bearer {pool.token}"}
        url = f"{pool.endpoint}/{operation}?identifier={pool.identifier}&api-version={ENVELOPE}"
        return session.request(cell.method, url, headers=headers, timeout=60, allow_redirects=False, **options)


@pytest.fixture(scope="module", params=["server", "gateway", "hub"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture(scope="module")
def foreign(host: Host) -> Iterator[Pool]:
    """The session of a token that none of the callers is, in which there is something."""
    pool = pool_of(host).another(token=mint(host).token)
    pool.value("open('a.txt', 'w').write('x')")
    yield pool
    assert pool.call("DELETE", "session").status_code == 204


def test_who_may_not_come_in_learns_nothing(host: Host, foreign: Pool) -> None:
    expired, revoked = mint(host, expires_in_seconds=0.05), mint(host)
    assert owner_of(host).call("DELETE", f"/tokens/{revoked.id}").status_code == 204
    time.sleep(0.1)
    wrong = [None, "wrong", new_token().text, new_token(revoked.id).text, expired.token, revoked.token]
    for token in wrong:
        for cell in CELLS:
            answer = send(foreign.another(token=token, identifier=foreign.identifier), cell)
            assert error_of(answer) == (401, "Unauthorized"), (cell, token)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("scope", SCOPES)
def test_one_scope_opens_its_routes_alone_and_nothing_of_others(host: Host, foreign: Pool, scope: str) -> None:
    pool = foreign.another(identifier=foreign.identifier, token=mint(host, [scope]).token)
    for cell in CELLS:
        answer = send(pool, cell)
        if cell.access.scope not in (None, scope) or cell.makes_a_session:
            # What would make a session needs the right to that, too, which this token cannot have beside its scope.
            assert error_of(answer) == (403, "Forbidden"), cell
        elif answer.status_code == 200:
            assert foreign.identifier not in answer.text, cell
        else:
            assert error_of(answer)[1] in ("SessionWithIdentifierNotFound", "FileNotFound", "NotFound"), cell


@pytest.mark.parametrize("who", ["all scopes", "owner"])
def test_who_may_do_everything_can(host: Host, who: str) -> None:
    pool = pool_of(host) if who == "owner" else pool_of(host).another(token=mint(host).token)
    for cell in sorted(CELLS, key=lambda cell: (cell.method == "DELETE", "stop" in cell.path, cell.path == "/session")):
        run_id = pool.run("open('a.txt', 'w').close()")["id"]
        answer = send(pool, cell, run_id)
        assert answer.status_code in (200, 204), (cell, answer.text)


@pytest.mark.parametrize("missing", sorted(ALL_SCOPES))
def test_without_one_scope_its_routes_are_closed(host: Host, missing: str) -> None:
    agent = mint(host, ALL_SCOPES - {missing})
    pool = pool_of(host).another(token=agent.token)
    for cell in CELLS:
        refused = cell.access.scope == missing or (missing == "sessions:create" and cell.makes_a_session)
        assert (send(pool, cell).status_code == 403) == refused, cell
    for session in agent.call("GET", "/sessions").json().get("sessions", []):
        owner_of(host).call("DELETE", f"/sessions/{session['id']}")


def test_the_table_is_all_there_is(host: Host) -> None:
    pool = pool_of(host)
    for route in ACA_ROUTES:
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - set(route.methods):
            answer = send(pool, Cell(route.path, method, Access(None, "read")))
            assert error_of(answer) == (400, "SessionRequestNotSupported"), (method, route.path)
            assert answer.headers["Allow"] == ", ".join(sorted(route.methods))


@pytest.mark.parametrize("path", ["", "/", "/nope", "/subscriptions/s/files", "/sessionPools//files", "/v1/sessions"])
def test_an_unknown_path_tells_a_stranger_nothing(host: Host, path: str) -> None:
    for token, expected in ((None, (401, "Unauthorized")), (owner_of(host).token, (404, "NotFound"))):
        pool = pool_of(host).another(token=token, path="")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = requests.get(f"{pool.endpoint}{path}", headers=headers, timeout=30, allow_redirects=False)
        assert error_of(answer) == expected


def test_a_site_or_a_host_of_somebody_elses_is_refused(hosts: Any) -> None:
    for name in ("server", "gateway"):
        pool = pool_of(hosts[name]).another(token=mint(hosts[name]).token)
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            answer = pool.call("POST", "executions", json={"code": "1"}, headers=headers)
            assert error_of(answer) == (403, "Forbidden"), headers


@pytest.fixture(scope="module", params=["server", "gateway"])
def restricted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host whose authorizer lets people read and nothing else."""
    home = tmp_path_factory.mktemp("restricted")
    (home / "no_execute.py").write_text(AUTHORIZER)
    app = "KernelGatewayApp" if request.param == "gateway" else "ServerApp"
    path = {"PYTHONPATH": f"{home}:{__file__.rpartition('/tests/')[0]}"}
    with running_host(
        request.param, home, f"--{app}.authorizer_class=no_execute.ReadOnly", UNPROTECTED, env=path
    ) as host:
        yield host


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_deployments_authorizer_is_asked(restricted: Host, cell: Cell) -> None:
    answer = send(pool_of(restricted), cell)
    if cell.access.action == "read":
        assert answer.status_code != 403
    else:
        assert error_of(answer) == (403, "Forbidden")


def test_making_a_session_is_for_the_authorizer_to_allow(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("no-write")
    authorizer = (
        AUTHORIZER + "\nclass NoWrite(Authorizer):\n    def is_authorized(self, handler, user, action, resource):"
    )
    (home / "no_execute.py").write_text(authorizer + '\n        return (action, resource) != ("write", "kernels")\n')
    path = {"PYTHONPATH": f"{home}:{__file__.rpartition('/tests/')[0]}"}
    option = "--ServerApp.authorizer_class=no_execute.NoWrite"
    with running_host("server", home, option, env=path) as host:
        pool = pool_of(host)
        assert error_of(pool.call("POST", "executions", json={"code": "1"})) == (403, "Forbidden")
        assert error_of(pool.upload("a", b"x")) == (403, "Forbidden")
        assert owner_of(host).call("GET", "/sessions").json() == {"sessions": []}
