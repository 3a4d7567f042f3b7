"""Requests that nobody would write, made up from the API's own document: the server fails at none of them.

By default each case is the same every time; in full (see `test_faults` for the scale) they differ from run to run, and
the seed is printed. `EXEC_FUZZ_SEED` repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation

from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.protocol.records_json import seconds_of
from tests.server.test_openapi import DOCUMENT, check
from tests.support.bearers import UNPROTECTED, mint
from tests.support.full import SCALE, scaled
from tests.support.hosts import Host, running_host

SEED = int(os.environ.get("EXEC_FUZZ_SEED", "19" if SCALE == 1 else str(random.SystemRandom().randrange(2**32))))

CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_headers_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.negative_data_rejection,
]
# A request can be as the document has it, and what it asks for not be there, be over, or be too much.
FINE = ["2xx", "404", "409", "410", "429"]
NOT_THERE = {"kernelspec_not_found", "language_not_supported", "policy_not_found", "packages_not_found"}
# How much a token may be at most is the server's configuration, not the document's.
NOT_THERE |= {"token_too_broad"}
# So is what isolation its kernels can have.
NOT_THERE |= {"isolation_required"}
# Made-up requests to an operation as the document has them, and as many as it does not have them: the more, the more
# there is to vary.
CASES = dict.fromkeys(["listExecutions", "listFiles", "downloadFile", "deleteFile", "getExecution", "getEvents"], 50)
CASES |= dict.fromkeys(["createSession", "runCode", "saveNotebook", "uploadFile", "answerInput"], 110)
FEWEST_CASES = 20
# The hosts differ only in who may come in and in what they keep, so the second one gets fewer.
SHARE = {"server": 2, "gateway": 1}
SECRET_HEADER = r"[A-Za-z0-9-]+:[^{}]*\{\}[^{}]*"
FILES = ["a.txt", "b.bin", "c", "dir/d.txt", "%C3%A9"]
# Values of headers that nobody would come upon by chance.
HEADERS = {
    "runCode": {
        "Prefer": ["respond-async", "respond-async, wait=0", "wait=1"],
        "Accept": ["text/event-stream", "application/x-ndjson", "*/*", "text/html"],
        "Idempotency-Key": ["one", "two", "three"],
    },
    "getExecution": {"Prefer": ["wait=0", "wait=1", "wait=x"]},
    "getEvents": {"Last-Event-ID": ["0", "1", ""], "Accept": ["text/event-stream", "application/x-ndjson"]},
    "downloadFile": {"Want-Repr-Digest": ["sha-256=10", "sha-256=0", "md5=1"]},
}
MAX_SESSIONS = 6
_SOON_SECONDS = 10.0
# Kernels take a second to start, so there are only so many for operations that need a new one each time.
NEW_KERNELS = 3 * SCALE


class Http(requests.Session):
    """Takes of the feed, which has no end, what comes first."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        if not str(request.path_url).partition("?")[0].endswith("exec/v1/events"):
            return super().send(request, **options)
        with super().send(request, **{**options, "stream": True}) as answer:
            if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                answer._content = next(answer.iter_content(None))
            _ = answer.content  # while it can be read
            return answer


class World:
    """A host with sessions, executions and files in the states they can be in, for requests to meet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.url = f"{host.info.url}exec/v1"
        self.http = Http()
        self.http.trust_env = False
        self.http.headers.update(host.info.auth_headers)
        self._started: Counter[str] = Counter()
        self.idle, self.busy, self.asked, self.doomed = (self.new_session() for _ in range(4))
        self.ended = self.new_session()
        self.past = self.run(self.ended, "1")
        self.call("DELETE", f"/sessions/{self.ended}")
        self.done = self.run(self.idle, "print('x' * 9); display({'text/plain': 'y'}, raw=True); 1")
        self.failed = self.run(self.idle, "1 / 0")
        self._running = self._asking = self._token = self._approvable = ""
        self.notebooks_kernel = self._start_kernel()
        agent = mint(host, policy="trusted", approval="always")
        self._agent, self._agents_session = agent, agent.session()
        for name in FILES:
            self.call("PUT", f"/sessions/{self.idle}/files/{name}", data=b"content")

    def call(self, method: str, path: str, **options: Any) -> Any:
        answer = self.http.request(method, self.url + path, timeout=60, **options)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def new_session(self) -> str:
        return str(self.call("POST", "/sessions", json={})["id"])

    def run(self, session_id: str, code: str, prefer: str = "", **fields: Any) -> str:
        path, headers = f"/sessions/{session_id}/executions", {"Prefer": prefer}
        return str(self.call("POST", path, json={"code": code, **fields}, headers=headers)["id"])

    def may_start(self, why: str) -> bool:
        """Count a new kernel, and return whether that is still one of those that `why` may start."""
        self._started[why] += 1
        return self._started[why] <= NEW_KERNELS

    def running(self) -> str:
        """Return the id of an execution that runs until it is stopped."""
        if not self._unfinished(self._running):
            self._running = self.run(self.busy, "import time; time.sleep(600)", "respond-async")
        return self._running

    def asking(self) -> str:
        """Return the id of an execution that waits for input."""
        if not self._unfinished(self._asking):
            self._asking = self.run(self.asked, "input()", "respond-async", allow_input=True)
            for line in self.http.get(f"{self.url}/executions/{self._asking}/events", stream=True).iter_lines():
                if b"input_request" in line:
                    break
        return self._asking

    def approvable(self) -> str:
        """Return the id of an execution that waits for a person."""
        if not self._unfinished(self._approvable):
            path = f"/sessions/{self._agents_session}/executions"
            answer = self._agent.call("POST", path, json={"code": "1"}, headers={"Prefer": "respond-async"})
            self._approvable = str(answer.json()["id"])
        return self._approvable

    def token(self) -> str:
        """Return the id of a token that can be taken away."""
        known = self.call("GET", f"/tokens/{self._token}") if self._token else None
        # A rotation may have given it an end that comes before the next request.
        if known is None or known["revoked_at"] or seconds_of(known["expires_at"]) < time.time() + _SOON_SECONDS:
            self._token = mint(self._host).id
        return self._token

    def secret(self) -> str:
        """Return the name of a secret that is there."""
        body = {"value": "a-long-value", "hosts": ["a.example"], "header": "X-Key: {}"}
        self.call("PUT", "/secrets/FUZZ", json=body)
        return "FUZZ"

    def grant(self) -> str:
        """Return the id of a grant that can be ended."""
        grants = self.call("GET", "/grants")["grants"]
        if not grants:
            asked = {"token_id": self.token(), "kernel_id": self.notebooks_kernel}
            grants = [self.call("POST", "/grants", json=asked)]
        return str(grants[0]["id"])

    def checkpoint(self) -> str:
        """Return the id of a checkpoint of the idle session."""
        path = f"/sessions/{self.idle}/checkpoints"
        found = self.call("GET", path)["checkpoints"] or [self.call("POST", path)]
        return str(found[0]["id"])

    def _start_kernel(self) -> str:
        """Return the id of a kernel that was started by Jupyter's own API, as a notebook's are."""
        answer = self.http.post(f"{self._host.info.url}api/kernels", json={}, timeout=60)
        answer.raise_for_status()
        return str(answer.json()["id"])

    def _unfinished(self, execution_id: str) -> bool:
        open_states = ("awaiting_approval", "queued", "running")
        return bool(execution_id) and self.call("GET", f"/executions/{execution_id}")["state"] in open_states

    def session_for(self, operation: str) -> str:
        """Return a session that is alive, if the operation leaves any."""
        if operation == "deleteSession":
            if self.may_start(operation):
                self.doomed = self.new_session()
            return self.doomed
        if operation == "restartSession" and not self.may_start(operation):
            return self.ended
        if operation == "interruptSession":
            self.running()
            return self.busy
        return self.idle

    def execution_for(self, operation: str) -> str:
        """Return an execution that the operation can do something to."""
        if operation == "cancelExecution":
            return self.running()
        if operation == "decideApproval":
            return self.approvable()
        return self.asking() if operation == "answerInput" else self.done


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    options = [
        f"--ExecEngine.max_sessions={MAX_SESSIONS}",
        "--ExecEngine.session_idle_timeout_seconds=0",
        "--ExecEngine.caller_env=*",
        UNPROTECTED,
    ]
    with running_host(request.param, tmp_path_factory.mktemp("fuzz"), *options) as host:
        yield host


@pytest.fixture(scope="module")
def world(host: Host) -> World:
    return World(host)


def aim(case: Any, world: World, rng: random.Random) -> None:
    """Make a request reach what it can do something to, and do no harm there.

    Ids, kernels and languages that were made up are right in form but not there, so that nothing would come of most
    requests.
    """
    operation = case.operation.definition.raw["operationId"]
    assert case.meta is not None
    if case.method.upper() != case.operation.method.upper():
        return  # there is no such method, on whatever
    bad = [where for where, part in case.meta.components.items() if part.mode is GenerationMode.NEGATIVE]
    # A wrong path is not found, whatever the body is.
    if ParameterLocation.PATH not in bad or ParameterLocation.BODY in bad:
        path = case.path_parameters
        if "session_id" in path and rng.random() < 0.9:
            path["session_id"] = world.session_for(operation) if rng.random() < 0.9 else world.ended
        if "execution_id" in path and rng.random() < 0.9:
            others = [world.failed, world.past, world.done]
            path["execution_id"] = world.execution_for(operation) if rng.random() < 0.8 else rng.choice(others)
        if "token_id" in path and rng.random() < 0.9:
            path["token_id"] = world.token()
        if "grant_id" in path and rng.random() < 0.9:
            path["grant_id"] = world.grant()
        if "checkpoint_id" in path and rng.random() < 0.9:
            path["checkpoint_id"] = world.checkpoint()
        if "secret_name" in path and (operation == "setSecret" or rng.random() < 0.9):
            path["secret_name"] = world.secret()
        if "path" in path and rng.random() < 0.5:
            path["path"] = rng.choice(FILES)
    for name, values in HEADERS.get(operation, {}).items():
        if rng.random() < 0.3:
            case.headers[name] = rng.choice(values)
    if operation == "getEvents":  # a log has few events; more than all of them cannot be known already
        if isinstance(case.query.get("after"), int):
            case.query["after"] %= 5
        if case.headers.get("Last-Event-ID", "").isdecimal():
            case.headers["Last-Event-ID"] = str(int(case.headers["Last-Event-ID"]) % 5)
    if not isinstance(case.body, dict):
        return
    body = case.body
    for name, known, longest in (("kernel_name", "python3", 256), ("language", "python", 64)):
        if isinstance(body.get(name), str) and len(body[name]) <= longest and rng.random() < 0.8:
            body[name] = known
    if operation == "createSession" and isinstance(body.get("kernel_id"), str) and len(body["kernel_id"]) <= 256:
        # It goes with none of the others, and most sessions are to be made.
        for name in ("kernel_id",) if rng.random() < 0.8 else ("kernel_name", "env", "cwd", "auto_checkpoint"):
            body.pop(name, None)
    if operation == "setSecret":  # which headers there may be, and which names hosts have, goes beyond a schema
        hosts = body.get("hosts")
        if isinstance(hosts, list) and 0 < len(hosts) <= 10 and all(isinstance(host, str) for host in hosts):
            body["hosts"] = ["a.example", "b.example:8443"]
        if re.fullmatch(SECRET_HEADER, str(body.get("header"))):
            body["header"] = "X-Key: {}"
    if operation in ("restoreSession", "branchSession") and isinstance(asked := body.get("checkpoint"), str):
        body["checkpoint"] = world.checkpoint() if 1 <= len(asked) <= 64 and rng.random() < 0.9 else asked
    if operation == "createGrant":
        for name, there in (("token_id", world.token()), ("kernel_id", world.notebooks_kernel)):
            if isinstance(body.get(name), str) and 1 <= len(body[name]) <= 256 and rng.random() < 0.9:
                body[name] = there
    if operation in ("runCode", "decideApproval") and isinstance(body.get("code"), str):
        # Nobody knows what a made-up text does as code, so it is only shown.
        body["code"] = repr(body["code"]) if body.get("language") in (None, "python") else ":"


def operations() -> dict[str, Any]:
    """Return the document's operations by their ids, as schemathesis has them."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    # Who may come in is the subject of `server.test_access`; here everybody may.
    schema.config.generation.update(with_security_parameters=False, database="none")
    schema.config.checks.positive_data_acceptance.expected_statuses = FINE
    found: Any = schema.get_all_operations()
    named = {result.ok().definition.raw["operationId"]: result.ok() for result in found}
    # What a program in a session answers is not described.
    return {name: operation for name, operation in named.items() if not name.endswith("FromPort")}


def check_events(answer: Any) -> None:
    """Check each event of a stream, which to schemathesis is text."""
    for line in answer.text.split("\n"):
        if line.startswith(("{", "data: ")):
            check(json.loads(line.removeprefix("data: ")), "Event")


def fuzz(world: World, operation: Any, examples: int) -> tuple[Counter[int], list[str]]:
    """Send an operation's cases; return how often which status came, and what was wrong with the answers."""
    name = operation.definition.raw["operationId"]
    rng = random.Random(f"{SEED} {name}")
    statuses: Counter[int] = Counter()
    wrong: list[str] = []
    made: list[str] = []  # sessions: at first each is deleted at once, then they are kept until there is no more room

    def ask(case: Any) -> None:
        aim(case, world, rng)
        answer = case.call(base_url=world.url, session=world.http, timeout=30)
        statuses[answer.status_code] += 1
        error = answer.json() if answer.status_code >= 400 else {}
        # The rules for paths (relative, no '..', so many bytes a part) go beyond what a schema can say.
        about_path = name in ("listFiles", "uploadFile") and "path" in error.get("message", "")
        unsaid = about_path or error.get("code") in NOT_THERE
        checks = CHECKS if unsaid else [*CHECKS, positive_data_acceptance]
        try:
            case.validate_response(answer, checks=checks)
        except FailureGroup as failures:
            wrong.append(str(failures))
        if error:
            kind = ExecError.for_code(error["code"])
            assert kind is not None and kind.status == answer.status_code, error
        elif name in ("runCode", "getEvents") and answer.headers["content-type"][0] != "application/json":
            check_events(answer)
        if name == "createSession" and answer.status_code == 201:
            made.append(answer.json()["id"])
            if world.may_start(name):
                world.call("DELETE", f"/sessions/{made.pop()}")

        if name == "createCheckpoint" and answer.status_code == 201:  # each has a process
            kept = answer.json()
            world.call("DELETE", f"/sessions/{kept['session_id']}/checkpoints/{kept['id']}")
        if name == "branchSession" and answer.status_code == 201:
            for branch in answer.json()["sessions"]:
                world.call("DELETE", f"/sessions/{branch['id']}")

    # First the limits of each field, then what chance brings.
    generation = operation.schema.config.generation
    for case in operation.schema.iter_coverage_cases(
        operation, generation_modes=list(GenerationMode), generation_config=generation
    ):
        ask(case)
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    # Where nothing can be given, nothing can be given wrongly.
    modes = list(GenerationMode) if operation.body or any(operation.iter_parameters()) else [GenerationMode.POSITIVE]
    for mode in modes:
        hypothesis.seed(SEED)(settings(hypothesis.given(operation.as_strategy(mode))(ask)))()
    for session_id in made:
        world.http.delete(f"{world.url}/sessions/{session_id}")
    return statuses, wrong


@pytest.mark.timeout(240 * SCALE)
def test_f19_every_request_is_answered_as_the_document_says(
    host: Host, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """20,000 (1,000) requests to a server, half as many to a gateway: none fails, and every answer is as described."""
    statuses: Counter[int] = Counter()
    share = SHARE[host.name]
    for name, operation in operations().items():
        came, wrong = fuzz(world, operation, CASES.get(name, FEWEST_CASES) * share * scaled(20, per_commit=1) // 4)
        statuses += came
        assert not wrong, f"{name}, seed {SEED}: {len(wrong)} wrong answers, at first\n" + "\n".join(wrong[:3])
        # Otherwise the cases would not show much. A gateway keeps no notebooks.
        # These sessions have no network rules, to which one could be added, and the server has no packages for them.
        is_never = name in ("allowNetwork", "installPackages") or (host.is_gateway and name == "saveNotebook")
        assert any(status < 300 for status in came) or is_never, (name, came)
    assert statuses.total() >= scaled(10_000, per_commit=500) * share
    assert max(statuses) < 500
    assert "failed (request" not in host.log_text()
    with capsys.disabled():
        print(f"\nF19: {host.name}: {statuses.total()} requests, {dict(sorted(statuses.items()))}, seed {SEED}")
