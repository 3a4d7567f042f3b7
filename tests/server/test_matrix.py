"""Who may call what: every route with every kind of credentials, on every host; and what a scoped token is worth on
the routes that are not ours, which is nothing.

The cells come from the route table. What each must answer is worked out from the table alone, so a handler that forgets
to ask shows here.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES, SCOPES
from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.server.gate import Access
from jupyter_exec_ext.server.routes import ROUTES
from tests.support import canaries
from tests.support.addresses import FromAddress
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.hosts import Host

pytestmark = pytest.mark.every_place  # who may do what is held everywhere, in every commit

SCHEMES = ("Bearer", "token")


@dataclass(frozen=True)
class Cell:
    path: str
    method: str
    access: Access

    @property
    def names_something(self) -> bool:
        return "{" in self.path


# An answer to HEAD has no body; tests/server/test_access.py has those.
CELLS = [
    Cell(route.path, method, access) for route in ROUTES for method, access in route.methods.items() if method != "HEAD"
]
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("/sessions/{session_id}/executions", "POST"): {"code": "1"},
    ("/executions", "POST"): {"code": "1"},
    ("/executions/{execution_id}/input", "POST"): {"value": "x"},
    ("/approvals/{execution_id}", "POST"): {"decision": "approve"},
    ("/tokens", "POST"): {"name": "made in the matrix", "scopes": ["tokens:create"]},
    ("/sessions/{session_id}/notebook", "POST"): {"path": "matrix.ipynb"},
    ("/sessions/{session_id}/ports", "POST"): {"port": 8501},
    ("/sessions/{session_id}/network", "POST"): {"rule": "matrix.example"},
    ("/secrets/{secret_name}", "PUT"): {"value": "matrix-value", "hosts": ["matrix.example"], "header": "X-Key: {}"},
    ("/sessions/{session_id}/packages", "POST"): {"packages": ["no-such-package"]},
}


QUERIES = {("/executions", "GET"): {"query": "matrix.txt"}}


def order(cell: Cell) -> int:
    """What others need must not be gone before their turn; a drained server makes no session for them."""
    if cell.path == "/drain":
        return 3 if cell.method == "POST" else 4
    if (cell.path, cell.method) == ("/secrets/{secret_name}", "PUT"):
        return -1
    if cell.method == "DELETE":
        return 2 if cell.path == "/sessions/{session_id}" else 1
    return 0


_COUNT = itertools.count()


def from_elsewhere() -> FromAddress:
    """Come from another address each time, so that no budget for wrong tokens is used up."""
    number = next(_COUNT)
    return FromAddress(f"127.0.{1 + number // 200}.{1 + number % 200}")


def send(host: Host, method: str, path: str, **options: Any) -> requests.Response:
    with requests.Session() as session:
        session.mount("http://", from_elsewhere())
        endless = path == "exec/v1/events"
        url = f"{host.info.url}{path}"
        answer = session.request(method, url, timeout=60, allow_redirects=False, stream=endless, **options)
        if endless and answer.status_code != 200:
            answer.content  # noqa: B018  # a refusal has an end, and is read
        return answer


@dataclass(frozen=True)
class Things:
    """What the ids in a path are filled with: things of somebody."""

    session_id: str
    execution_id: str
    token_id: str
    grant_id: str
    checkpoint_id: str
    granted: dict[str, str]

    def fill(self, path: str) -> str:
        names = ("session_id", "execution_id", "token_id", "grant_id", "checkpoint_id")
        known = {**{name: getattr(self, name) for name in names}, "port": "8501", "rest": "", "secret_name": "MATRIX"}
        return re.sub(r"\{(\w+)\}", lambda match: known.get(match[1], "matrix.txt"), path)


def call(host: Host, cell: Cell, token: str | None, things: Things, scheme: str = "Bearer") -> requests.Response:
    headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
    options: dict[str, Any] = {"headers": headers, "params": QUERIES.get((cell.path, cell.method))}
    if (cell.path, cell.method) == ("/grants", "POST"):
        options["json"] = things.granted
    elif cell.path == "/sessions/{session_id}/restore":
        options["json"] = {"checkpoint": things.checkpoint_id}
    elif (cell.path, cell.method) in BODIES:
        options["json"] = BODIES[cell.path, cell.method]
    elif cell.method == "PUT":
        options["data"] = b"x"
    return send(host, cell.method, f"exec/v1{things.fill(cell.path)}", **options)


def things_of(bearer: Bearer) -> Things:
    session_id = bearer.session()
    ran = bearer.run(session_id, "print(1); open('matrix.txt', 'w').write('x')")
    assert ran.json()["state"] == "ok", ran.text
    checkpoint = bearer.call("POST", f"/sessions/{session_id}/checkpoints")
    assert checkpoint.status_code == 201, checkpoint.text
    headers = bearer.host.owner.auth_headers
    kernel = requests.post(f"{bearer.host.info.url}api/kernels", json={}, headers=headers, timeout=60)
    granted = {"token_id": bearer.id, "kernel_id": kernel.json()["id"]}
    grant = owner_of(bearer.host).call("POST", "/grants", json=granted)
    below = mint(bearer, ["sessions:read"], name="below").id
    return Things(session_id, ran.json()["id"], below, grant.json()["id"], checkpoint.json()["id"], granted)


@pytest.fixture(scope="module", params=["lab", "gateway", "hub"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture(scope="module")
def foreign(host: Host) -> Iterator[Things]:
    """Things of a token that none of the callers is."""
    bearer = mint(host)
    things = things_of(bearer)
    yield things
    bearer.call("DELETE", f"/sessions/{things.session_id}")


def test_there_are_as_many_cells_as_promised() -> None:
    kinds = 5 + 1 + len(SCOPES) + 1 + 1
    assert len(CELLS) * kinds * len(SCHEMES) * 3 >= 2000


def wrong_tokens(host: Host) -> dict[str, tuple[str | None, str]]:
    """Return, by kind, credentials that let nobody in, and the code that says so."""
    expired = mint(host, expires_in_seconds=0.05)
    revoked = mint(host)
    assert owner_of(host).call("DELETE", f"/tokens/{revoked.id}").status_code == 204
    time.sleep(0.1)
    return {
        "none": (None, "unauthenticated"),
        "malformed": (revoked.token[:-1] + ("a" if revoked.token[-1] != "a" else "b"), "unauthenticated"),
        "unknown": (new_token().text, "unauthenticated"),
        "wrong secret": (new_token(revoked.id).text, "unauthenticated"),
        "expired": (expired.token, "token_expired"),
        "revoked": (revoked.token, "token_revoked"),
    }


def test_who_may_not_come_in_learns_nothing(host: Host, foreign: Things) -> None:
    wrong = []
    for kind, (token, code) in wrong_tokens(host).items():
        for cell, scheme in itertools.product(CELLS, SCHEMES):
            answer = call(host, cell, token, foreign, scheme)
            found = (answer.status_code, answer.json()["code"], answer.headers.get("WWW-Authenticate"))
            if found != (401, code, "Bearer") or "Set-Cookie" in answer.headers:
                wrong.append((kind, cell.method, cell.path, scheme, found))
    assert wrong == []


def refusal(cell: Cell, scopes: frozenset[str]) -> str | None:
    """Return the code with which the table refuses a token, None if it does not."""
    if cell.access.owner_only:
        return "owner_only"
    needed = {cell.access.scope, cell.access.and_scope} - {None}
    return None if needed <= scopes else "missing_scope"


@pytest.mark.parametrize("scope", SCOPES)
def test_one_scope_opens_its_routes_alone_and_nothing_of_others(host: Host, foreign: Things, scope: str) -> None:
    bearer = mint(host, [scope])
    wrong = []
    for cell, scheme in itertools.product(CELLS, SCHEMES):
        answer = call(host, cell, bearer.token, foreign, scheme)
        expected = refusal(cell, frozenset({scope}))
        code = answer.json().get("code") if answer.status_code >= 400 else None
        if expected is not None:
            good = (answer.status_code, code) == (403, expected)
        elif cell.names_something:
            good = answer.status_code == 404 and str(code).endswith("_not_found") and code != "not_found"
        else:
            good = answer.status_code in (200, 201)
        if not good or "Set-Cookie" in answer.headers:
            wrong.append((cell.method, cell.path, scheme, answer.status_code, code))
        if cell.path == "/sessions" and answer.status_code == 201:
            owner_of(host).call("DELETE", f"/sessions/{answer.json()['id']}")
    assert wrong == []


def test_a_fresh_session_for_a_run_takes_two_scopes(host: Host) -> None:
    needed = {"executions:create", "sessions:create"}
    for missing in (*needed, None):
        bearer = mint(host, sorted(ALL_SCOPES - {missing, "kernels:attach"}))
        answer = bearer.call("POST", "/executions", json={"code": "print(1)"})
        if missing is None:
            assert (answer.status_code, answer.json()["stdout"]) == (200, "1\n")
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
            assert repr(missing) in answer.json()["message"]


def test_with_all_scopes_things_of_others_are_as_if_they_were_not(host: Host, foreign: Things) -> None:
    bearer = mint(host)
    nothing = Things("ses_nothing", "exe_nothing", "nothing1", "grt_nothing", "chk_nothing", {})
    wrong = []
    for cell, scheme in itertools.product(CELLS, SCHEMES):
        if cell.names_something and not cell.access.owner_only:
            theirs, none = (call(host, cell, bearer.token, things, scheme) for things in (foreign, nothing))
            told = [{**answer.json(), "message": "", "request_id": ""} for answer in (theirs, none)]
            if (theirs.status_code, told[0]) != (404, told[1]):
                wrong.append((cell.method, cell.path, scheme, theirs.status_code, theirs.text))
    assert wrong == []
    assert bearer.call("GET", "/sessions?ended=true").json() == {"sessions": []}
    assert bearer.call("GET", "/grants?ended=true").json() == {"grants": []}
    assert bearer.call("GET", "/executions?query=matrix.txt").json()["found"] == []
    found = owner_of(host).call("GET", "/executions?query=matrix.txt").json()["found"]
    assert foreign.execution_id in [one["execution"]["id"] for one in found]
    assert [token["id"] for token in bearer.call("GET", "/tokens?ended=true").json()["tokens"]] == [bearer.id]


@pytest.mark.parametrize("who", ["all scopes", "owner"])
def test_who_may_do_everything_can(host: Host, who: str) -> None:
    """Each route does what it is for; that it has to say no to the state of things is no refusal."""
    bearer = mint(host) if who == "all scopes" else owner_of(host)
    things = things_of(bearer if who == "all scopes" else mint(host))
    wrong = []
    for cell in sorted(CELLS, key=order):
        answer = call(host, cell, bearer.token, things)
        fine = answer.status_code < 300 or answer.status_code == 409
        if cell.path.endswith("/outputs/{name}"):  # this execution has none beyond its record
            fine = answer.json()["code"] == "output_not_found"
        if cell.path.endswith("/{port}/{rest}"):  # no program of this session listens
            fine = answer.json()["code"] in ("port_unreachable", "port_not_found")
        if cell.path.endswith("/packages"):  # the policy allows none, and the server has no wheels for its owner
            fine = answer.json()["code"] in ("policy_denied", "packages_not_found")
        if cell.access.owner_only and who != "owner":
            fine = (answer.status_code, answer.json()["code"]) == (403, "owner_only")
        if cell.names_something and cell.method == "GET" and answer.status_code == 404 and "files" in cell.path:
            fine = False
        if not fine:
            wrong.append((cell.method, cell.path, answer.status_code, answer.text[:200]))
        if cell.path in ("/sessions", "/sessions/{session_id}/branches") and answer.status_code == 201:
            made = answer.json()
            for session in made.get("sessions", [made]):
                owner_of(host).call("DELETE", f"/sessions/{session['id']}")
    assert wrong == []


def test_what_an_owner_sees_is_everything(host: Host, foreign: Things) -> None:
    sessions = owner_of(host).call("GET", "/sessions").json()["sessions"]
    assert foreign.session_id in [session["id"] for session in sessions]


# --- routes that are not ours ---

CORE = [
    *((method, "api") for method in ("GET",)),
    *itertools.product(("GET", "POST", "PATCH", "PUT", "DELETE"), ("api/contents", "api/contents/x.txt")),
    *itertools.product(("GET", "POST"), ("api/contents/x.txt/checkpoints",)),
    *itertools.product(("POST", "DELETE"), ("api/contents/x.txt/checkpoints/1",)),
    *itertools.product(("GET", "PATCH", "DELETE"), ("api/sessions/some",)),
    *itertools.product(("GET", "POST"), ("api/sessions", "api/kernels", "api/terminals")),
    *itertools.product(("GET", "DELETE"), ("api/kernels/{kernel}", "api/terminals/1")),
    *itertools.product(("POST",), ("api/kernels/{kernel}/interrupt", "api/kernels/{kernel}/restart")),
    *itertools.product(
        ("GET",), ("api/kernelspecs", "api/me", "api/status", "api/spec.yaml", "api/resolvePath?path=x")
    ),
    *itertools.product(("GET", "PUT", "PATCH"), ("api/config/notebook",)),
    *itertools.product(("POST",), ("api/events", "api/shutdown", "api/security/csp-report", "login")),
    *itertools.product(("GET", "PUT", "DELETE"), ("lab/api/workspaces/x", "lab/api/settings/x")),
    *itertools.product(
        ("GET",),
        (
            *("", "lab", "tree", "login", "logout", "metrics", "files/x.txt", "nbconvert/html/x.ipynb", "view/x.txt"),
            *("api/nbconvert", "kernelspecs/python3/logo-64x64.png", "static/favicon.ico", "api/events/subscribe"),
            *("api/kernels/{kernel}/channels", "terminals/websocket/1", "api/swagger.json", "_api/spec/swagger.json"),
            *("lsp/status", "lab/api/listings/x", "lab/api/translations/x", "exec", "execute", "oauth_callback"),
        ),
    ),
]


_NEW_EACH_TIME = re.compile(r"\b2\|[0-9a-f|]+|[0-9a-f]{32,}|\b[\w-]{40,}|\d\d:\d\d:\d\d")
_MEASURED = re.compile(r"^(?:#|python_|process_|http_request|kernel_|terminal_|jupyter_|server_).*$", re.MULTILINE)


def seen(answer: requests.Response, token: str) -> tuple[Any, ...]:
    """Return what can be told apart in an answer, without what is new in every one and without what was sent."""
    sent = re.compile(rf"(?:[?&]|%3F|%26)token(?:=|%3D){token}|{token}")
    text = _MEASURED.sub("", _NEW_EACH_TIME.sub("", sent.sub("", answer.text)))
    location = sent.sub("", answer.headers.get("Location", ""))
    location = re.sub(r"(?:state|_id|code_challenge)=[^&]*", "", location).rstrip("?")
    return answer.status_code, answer.headers.get("Content-Type"), location, sorted(answer.cookies.keys()), text


def test_a_scoped_token_is_worth_nothing_on_other_routes(host: Host, foreign: Things) -> None:
    """As header, in the URL and as cookie, it answers exactly as no credentials at all."""
    token = canaries.forget(mint(host).token)
    kernel = owner_of(host).call("GET", f"/sessions/{foreign.session_id}").json()["kernel_id"]
    cookie_name = f"username-127-0-0-1-{host.info.port}"
    wrong = []
    for method, pattern in CORE:
        path = pattern.replace("{kernel}", kernel)
        body: dict[str, Any] = {} if method == "GET" else {"json": {}}
        plain = seen(send(host, method, path, **body), token)
        joined = f"{path}{'&' if '?' in path else '?'}token={token}"
        ways = {
            "header": send(host, method, path, headers={"Authorization": f"token {token}"}, **body),
            "bearer": send(host, method, path, headers={"Authorization": f"Bearer {token}"}, **body),
            "url": send(host, method, joined, **body),
            "cookie": send(host, method, path, cookies={cookie_name: token, "token": token}, **body),
        }
        wrong += [(way, method, path, plain, seen(a, token)) for way, a in ways.items() if seen(a, token) != plain]
    assert wrong == []
    assert len(CORE) >= 64
    still_there = owner_of(host).call("GET", f"/sessions/{foreign.session_id}").json()
    assert (still_there["state"], still_there["kernel_id"]) == ("idle", kernel)


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_a_scoped_token_opens_no_websocket(host: Host, foreign: Things) -> None:
    token = canaries.forget(mint(host).token)
    kernel = owner_of(host).call("GET", f"/sessions/{foreign.session_id}").json()["kernel_id"]
    for path in (f"api/kernels/{kernel}/channels", "api/events/subscribe", "terminals/websocket/1"):
        plain = send(host, "GET", path, headers=UPGRADE).status_code
        assert plain >= 400
        assert send(host, "GET", path, headers={**UPGRADE, "Authorization": f"token {token}"}).status_code == plain
        assert send(host, "GET", f"{path}?token={token}", headers=UPGRADE).status_code == plain
        protocol = {"Sec-WebSocket-Protocol": f"v1.token.websocket.jupyter.org.{token}"}
        assert send(host, "GET", path, headers={**UPGRADE, **protocol}).status_code == plain


def test_the_whole_of_scopes_is_used_by_the_table() -> None:
    used = {cell.access.scope for cell in CELLS} - {None}
    assert used | {"kernels:attach"} == ALL_SCOPES
