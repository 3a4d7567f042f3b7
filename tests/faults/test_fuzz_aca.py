"""Requests to the endpoint for ACA clients that nobody would write, made up from its own document.

As `test_fuzz`: the same every time, unless in full; the seed is printed, and `EXEC_FUZZ_SEED` repeats a run.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.core.failures import FailureGroup

from tests.aca.endpoint.test_openapi import DOCUMENT
from tests.faults.test_fuzz import CHECKS, SEED
from tests.support.full import SCALE, scaled
from tests.support.hosts import Host, running_host
from tests.support.pool_clients import pool_of

CASES = scaled(250, per_commit=12)
FILES = ["a.txt", "d/b.txt", "content", "%C3%A9"]
RUNS = ("executeCode", "executePython", "execute")
MAX_SESSIONS = 4
# Kernels take a second to start, so only so many sessions may be ended.
MOST_ENDED = 3 * SCALE


class World:
    """A pool with sessions in it, for requests to meet."""

    def __init__(self, host: Host) -> None:
        self.pool = pool_of(host)
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.headers.update(host.info.auth_headers)
        self.ended: Counter[str] = Counter()
        self.run_id = ""
        self.fill()

    def fill(self) -> None:
        """Make sure that there are a session, files and a run."""
        self.run_id = str(self.pool.run("1")["id"])
        for name in FILES:
            assert self.pool.upload(name, b"content").status_code == 200


@pytest.fixture(scope="module", params=["server", "gateway"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    options = [f"--ExecEngine.max_sessions={MAX_SESSIONS}", "--ExecEngine.max_session_files=0"]
    with running_host(request.param, tmp_path_factory.mktemp("fuzz-aca"), *options) as host:
        yield World(host)


def operations() -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.config.generation.update(with_security_parameters=False, database="none")
    found: Any = schema.get_all_operations()
    return {result.ok().definition.raw["operationId"]: result.ok() for result in found}


def aim(case: Any, world: World, name: str, rng: random.Random) -> None:
    """Make a request reach what it can do something to, and do no harm there."""
    known = "identifier" in case.query and isinstance(case.query["identifier"], str)
    ends = name in ("removeSession", "stopSession")
    if known and 4 <= len(case.query["identifier"]) <= 128 and case.query["identifier"].isascii():
        # Made-up names are as good as any, but would each start a kernel.
        if ends and world.ended[name] >= MOST_ENDED:
            case.query["identifier"] = "never-was-there"
        elif name in RUNS or name.startswith("upload") or rng.random() < 0.9:
            case.query["identifier"] = world.pool.identifier
    # An improper one stays, since it may be what the request is to be refused for.
    if re.fullmatch("[A-Za-z0-9_-]{1,64}", str(case.path_parameters.get("execution_id"))) and rng.random() < 0.8:
        case.path_parameters["execution_id"] = world.run_id
    if "path" in case.path_parameters and rng.random() < 0.6:
        case.path_parameters["path"] = rng.choice(FILES)
    body = case.body
    for place in (body, body.get("properties") if isinstance(body, dict) else None):
        for field in ("code", "pythonCode"):
            if isinstance(place, dict) and isinstance(place.get(field), str):
                place[field] = repr(place[field])  # nobody knows what a made-up text does as code


def fuzz(world: World, name: str, operation: Any, examples: int) -> tuple[Counter[int], list[str]]:
    rng = random.Random(f"{SEED} {name}")
    statuses: Counter[int] = Counter()
    wrong: list[str] = []

    def ask(case: Any) -> None:
        aim(case, world, name, rng)
        answer = case.call(base_url=world.pool.endpoint, session=world.http, timeout=30)
        statuses[answer.status_code] += 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as failures:
            wrong.append(str(failures))
        if answer.status_code >= 400:
            assert answer.headers["x-ms-error-code"] == [answer.json()["error"]["code"]]
        elif name in ("removeSession", "stopSession"):
            world.ended[name] += 1
            world.fill()

    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    modes = list(schemathesis.GenerationMode)
    modes = modes if operation.body or any(operation.iter_parameters()) else [schemathesis.GenerationMode.POSITIVE]
    for mode in modes:
        hypothesis.seed(SEED)(settings(hypothesis.given(operation.as_strategy(mode))(ask)))()
    return statuses, wrong


@pytest.mark.timeout(240 * SCALE)
def test_every_request_of_a_session_pool_is_answered_as_the_document_says(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses: Counter[int] = Counter()
    for name, operation in operations().items():
        world.fill()
        came, wrong = fuzz(world, name, operation, CASES)
        statuses += came
        assert not wrong, f"{name}, seed {SEED}: {len(wrong)} wrong answers, at first\n" + "\n".join(wrong[:3])
        assert any(status < 300 for status in came), (name, came)
    assert statuses.total() >= 20 * CASES
    assert max(statuses) < 500
    assert "failed (request" not in world.pool.host.log_text()
    with capsys.disabled():
        told = dict(sorted(statuses.items()))
        print(f"\nfuzz of a session pool: {world.pool.host.name}: {statuses.total()} requests, {told}, seed {SEED}")
