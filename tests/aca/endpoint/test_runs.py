"""Runs in sessions of the endpoint for ACA clients, on real kernels: values, failures, limits, whose session it is."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from jupyter_exec_ext.aca.endpoint.run_handlers import DEFAULT_STREAMS_LENGTH
from tests.support.bearers import UNPROTECTED, mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec
from tests.support.pool_clients import ENVELOPE, Pool, error_of, new_identifier, pool_of

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 90).decode()
SHOW = f"display({{'image/png': {PNG!r}, 'text/plain': '<Figure>'}}, raw=True)"
VERSION = "api-version=2024-02-02-preview"
IMAGE = {"type": "image", "format": "png", "base64_data": PNG}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture(scope="module")
def shared(host: Host) -> Iterator[Pool]:
    """A session for runs that do not mind what ran before."""
    pool = pool_of(host)
    pool.value("1")
    yield pool
    assert pool.call("DELETE", "session").status_code == 204


@pytest.fixture
def pool(host: Host) -> Iterator[Pool]:
    """A session of its own, which is not made before it is used."""
    pool = pool_of(host)
    yield pool
    pool.call("DELETE", "session")


def sessions_of(host: Host, identifier: str) -> list[dict[str, Any]]:
    """Return the engine's sessions that have the identifier as their name."""
    listed = owner_of(host).call("GET", "/sessions").json()["sessions"]
    return [session for session in listed if session["name"] == identifier]


def envelope(pool: Pool, code: str, **fields: Any) -> dict[str, Any]:
    answer = pool.call("POST", "code/execute", ENVELOPE, json={"properties": {"code": code, **fields}})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


# --- values ---

VALUES = [
    ("pass", ""),
    ("print(1)", ""),
    ("None", ""),
    ("1 + 1", 2),
    ("-0.5", -0.5),
    ("True", True),
    ("float('nan')", None),
    ("'nan'", "nan"),
    ("'2'", "2"),
    ("[1, 2]", "[1, 2]"),
    ("{'a': 1}", "{'a': 1}"),
    ("list(range(40))", "[" + ",\n ".join(map(str, range(40))) + "]"),
    (SHOW, IMAGE),
    (f"{SHOW}; [1]", IMAGE),
]


@pytest.mark.parametrize(("code", "value"), VALUES)
def test_the_value_is_the_same_in_both_families(shared: Pool, code: str, value: Any) -> None:
    flat = shared.run(code)
    assert (flat["status"], flat["result"]["executionResult"]) == ("Succeeded", value)
    told = envelope(shared, code)["properties"]
    assert (told["status"], told["result"], told["executionResult"]) == ("Success", value, value)


def test_the_text_that_ipython_shows_can_be_asked_for(shared: Pool) -> None:
    for code, value in [("'nan'", "'nan'"), ("float('nan')", "nan"), ("None", None)]:
        assert shared.value(code, returnJupyterFormatExecutionResult=True) == value


def test_what_is_displayed_and_no_picture_is_printed_where_it_was_shown(shared: Pool) -> None:
    code = f"import sys; print('a'); display([1]); print('b'); print('e', file=sys.stderr); {SHOW}"
    result = shared.run(code)["result"]
    assert (result["stdout"], result["stderr"], result["executionResult"]) == ("a\n[1]\nb\n", "e\n", IMAGE)


def test_an_answer_has_the_fields_that_clients_read(shared: Pool) -> None:
    flat, told = shared.run("1", executionType="synchronous"), envelope(shared, "1")
    assert flat["identifier"] == shared.identifier
    assert {"id", "executionType", "status", "result"} <= set(flat)
    names = ["stdout", "stderr", "executionTimeInMilliseconds"]
    assert {*names, "executionResult"} <= set(flat["result"])
    assert {*names, "status", "result"} <= set(told["properties"])


def test_code_may_come_in_base64(shared: Pool) -> None:
    assert shared.value(base64.b64encode("'é' * 2".encode()).decode(), codeInputType="InlineBase64") == "éé"


def test_the_first_preview_is_answered_without_an_envelope(shared: Pool) -> None:
    answer = shared.call("POST", "python/execute", ENVELOPE, json={"properties": {"pythonCode": "print(1); 2"}}).json()
    assert (answer["status"], answer["stdout"], answer["stderr"], answer["result"]) == ("Success", "1\n", "", 2)


# --- failures ---


def test_an_exception_is_a_result_with_a_plain_traceback(shared: Pool) -> None:
    shared.value("kept = 1")
    answer = shared.run("print('before'); 'a' + 1")
    assert answer["status"] == "Failed"
    assert answer["result"]["stdout"] == "before\n"
    assert "TypeError: can only concatenate str" in answer["result"]["stderr"]
    assert "\x1b" not in answer["result"]["stderr"]
    assert envelope(shared, "1/0")["properties"]["status"] == "Failure"
    assert shared.value("kept") == 1


def test_code_is_stopped_in_time_and_the_session_goes_on(shared: Pool) -> None:
    shared.value("kept = 2")
    answer = shared.run("print('x', flush=True)\nwhile True: pass", timeoutInSeconds=1)
    assert (answer["status"], answer["result"]["stdout"]) == ("Failed", "x\n")
    assert "timed out waiting for code execution to complete" in answer["result"]["stderr"]
    assert 900 < answer["result"]["executionTimeInMilliseconds"] < 20_000
    assert shared.value("kept") == 2


def test_a_kernel_that_dies_is_replaced_and_the_files_stay(pool: Pool) -> None:
    answer = pool.run("open('a.txt', 'w').write('x'); import os; os._exit(3)")
    assert answer["status"] == "Failed"
    assert answer["result"]["stderr"].startswith("Execution aborted: ")
    assert pool.value("open('/mnt/data/a.txt').read()") == "x"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("executions", {"properties": {"code": "1"}}, "SessionPropertiesMissing"),
        ("executions", {"shellCommand": "ls"}, "SessionPropertiesMissing"),
        ("executions", {}, "SessionPropertiesMissing"),
        ("executions", [], "SessionPropertiesMissing"),
        ("code/execute", {"code": "1"}, "SessionPropertiesMissing"),
        ("code/execute", {"properties": {"code": "1", "executionType": "asynchronous"}}, None),
        ("executions", {"code": "1", "executionType": "later"}, None),
        ("executions", {"code": "1", "timeoutInSeconds": 0}, None),
        ("executions", {"code": "!", "codeInputType": "InlineBase64"}, None),
    ],
)
def test_a_request_in_another_form_is_refused_and_makes_no_session(pool: Pool, path: str, body: Any, code: str) -> None:
    answer = pool.call("POST", path, json=body)
    assert error_of(answer) == (400, code or "SessionRequestValidationFailed")
    assert sessions_of(pool.host, pool.identifier) == []


def test_an_unknown_version_path_or_method_is_refused(pool: Pool) -> None:
    assert error_of(pool.call("POST", "executions", "2099-01-01", json={"code": "1"})) == (
        400,
        "SessionRequestValidationFailed",
    )
    assert error_of(pool.call("GET", "executionz")) == (404, "NotFound")
    assert error_of(pool.call("PUT", "executions")) == (400, "SessionRequestNotSupported")


# --- streams ---


def test_streams_are_short_from_the_version_on_that_says_so(shared: Pool) -> None:
    code = "import sys; print('x' * 9000); print('y' * 9000, file=sys.stderr)"
    result = shared.run(code)["result"]
    for stream, letter in (("stdout", "x"), ("stderr", "y")):
        assert len(result[stream]) == DEFAULT_STREAMS_LENGTH
        assert result[stream].startswith(letter * 1000) and result[stream].endswith(letter * 1000 + "\n")
        assert "[9001 characters, shortened to 4096]" in result[stream]
    assert len(shared.run(code, outputStreamsMaxLength=50)["result"]["stdout"]) == 50
    assert len(shared.run(code, outputStreamsMaxLength=9001)["result"]["stdout"]) == 9001
    assert len(shared.run(code, version="2025-02-02-preview")["result"]["stdout"]) == 9001
    assert len(envelope(shared, code)["properties"]["stdout"]) == 9001


# --- asynchronous runs, repetitions ---


def test_a_run_in_the_background_is_read_where_the_answer_says(pool: Pool) -> None:
    gate = "import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)\n'done'"
    started = pool.call("POST", "executions", json={"code": gate, "executionType": "Asynchronous"})
    assert started.status_code == 202
    assert started.json()["status"] in ("NotStarted", "Running")
    assert "result" not in started.json()
    where = started.headers["Operation-Location"]
    assert where.startswith(pool.endpoint)
    headers = {"Authorization": f"Bearer {pool.token}"}
    assert pool.upload("go", b"").status_code == 200
    while (answer := requests.get(where, headers=headers, timeout=30).json())["status"] in ("NotStarted", "Running"):
        pass
    assert (answer["status"], answer["result"]["executionResult"]) == ("Succeeded", "done")
    other = pool.another()
    other.value("1")
    operation = f"executions/{answer['id']}"
    assert error_of(other.call("GET", operation)) == (404, "NotFound")
    assert error_of(pool.another(token=mint(pool.host).token).call("GET", operation)) == (404, "NotFound")
    other.call("DELETE", "session")


def test_an_operation_id_makes_a_repetition_safe(pool: Pool) -> None:
    pool.value("count = 0")
    repeated: dict[str, Any] = {"json": {"code": "count += 1; count"}, "headers": {"operation-id": "op-1"}}
    answers = [pool.call("POST", "executions", **repeated) for _ in range(3)]
    assert [answer.json() for answer in answers] == [answers[0].json()] * 3
    assert {answer.headers["operation-id"] for answer in answers} == {"op-1"}
    assert pool.value("count") == 1
    other = pool.call("POST", "executions", json={"code": "2"}, headers={"operation-id": "op-1"})
    assert error_of(other) == (409, "Conflict")
    assert error_of(pool.call("POST", "executions", json={"code": "2"}, headers={"operation-id": "a b"})) == (
        400,
        "SessionRequestValidationFailed",
    )


# --- sessions ---


def test_calls_that_come_at_once_make_one_session_and_take_turns(pool: Pool) -> None:
    barrier = threading.Barrier(8)

    def one(number: int) -> Any:
        barrier.wait()
        code = f"seen = globals().setdefault('seen', []); seen.append({number}); before = len(seen)\n"
        return pool.value(code + "import time; time.sleep(0.01); (before == len(seen)) and before")

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(one, range(8))) == list(range(1, 9))
    assert len(sessions_of(pool.host, pool.identifier)) == 1


def test_a_session_that_is_gone_is_replaced(pool: Pool) -> None:
    ways = [
        lambda: pool.call("DELETE", "session").status_code == 204,
        lambda: pool.call("POST", ".management/stopSession").text.startswith("Session "),
        lambda: owner_of(pool.host).call("DELETE", f"/sessions/{only()['id']}").status_code == 204,
    ]

    def only() -> dict[str, Any]:
        [session] = sessions_of(pool.host, pool.identifier)
        return session

    for end in ways:
        pool.value("x = open('left', 'w').write('1')")
        assert end()
        assert error_of(pool.call("GET", "session")) == (400, "SessionWithIdentifierNotFound")
        assert pool.value("import os; ('x' in globals(), os.listdir('.'))") == "(False, [])"


def test_a_session_tells_of_itself(pool: Pool) -> None:
    for operation in (("GET", "session"), ("DELETE", "session"), ("POST", ".management/getSession")):
        assert error_of(pool.call(*operation)) == (400, "SessionWithIdentifierNotFound")
    assert sessions_of(pool.host, pool.identifier) == []  # nothing is made to be looked at
    pool.value("1")
    told = pool.call("GET", "session").json()
    assert told["identifier"] == pool.identifier
    assert told["createdAt"] <= told["lastAccessedAt"] < told["expireAt"]
    managed = pool.call("POST", ".management/getSession").json()
    assert (managed["identifier"], managed["etag"]) == (told["identifier"], told["etag"])
    listed = pool.call("GET", "listSessions").json()["sessions"]
    assert [session["etag"] for session in listed if session["identifier"] == pool.identifier] == [told["etag"]]
    assert pool.identifier in {s["identifier"] for s in pool.call("POST", ".management/listSessions").json()["value"]}
    assert pool.identifier not in pool.another(path="").call("GET", "listSessions").text
    assert pool.call("GET", "metadata").json()["jupyterKernel"]["name"] == "python3"


def test_one_name_in_two_pools_or_of_two_callers_is_two_sessions(pool: Pool) -> None:
    mine = [pool, *(pool.another(identifier=pool.identifier, path=path) for path in ("", "/sessionPools/p"))]
    agents = [mint(pool.host), mint(pool.host)]
    below = mint(agents[0])
    theirs = [pool.another(identifier=pool.identifier, token=agent.token) for agent in [*agents, below]]
    for number, one in enumerate([*mine, *theirs]):
        assert one.value(f"'mine' in globals() or (mine := {number})") == number
    for number, one in enumerate([*mine, *theirs]):
        assert one.value("mine") == number
        assert len(one.call("GET", "listSessions").json()["sessions"]) >= 1
    for one in theirs:
        assert [s["identifier"] for s in one.call("GET", "listSessions").json()["sessions"]] == [pool.identifier]
    for one in [*mine[1:], *theirs]:
        assert one.call("DELETE", "session").status_code == 204
    assert pool.value("mine") == 0


@pytest.mark.parametrize(
    "query",
    [
        VERSION,
        f"identifier=abc&{VERSION}",
        f"identifier={'a' * 129}&{VERSION}",
        f"identifier=abcd&identifier=abcd&{VERSION}",
        f"identifier=abcd&{VERSION}&{VERSION}",
        "identifier=abcd",  # what is sent of "abcd#1" by who does not quote it
        f"identifier=abcd%zz&{VERSION}",
        f"identifier=abcd%2&{VERSION}",
        f"identifier=abcd%00&{VERSION}",
        f"identifier=ab%20cd&{VERSION}",
        f"identifier=ab+cd&{VERSION}",
        f"identifier=abcd%C3%A9&{VERSION}",
        f"identifier=abcd%ff&{VERSION}",
        f"identifier=ab%5Ccd&{VERSION}",
        f"identifier=abcd%0a&{VERSION}",
    ],
)
def test_a_name_that_could_be_taken_for_another_is_refused(shared: Pool, query: str) -> None:
    info = shared.host.info
    headers = {"Authorization": f"Bearer {shared.token}", "Content-Type": "application/json"}
    place = urlsplit(shared.endpoint).path
    for method, path in (("POST", "code/execute"), ("GET", "files"), ("DELETE", "session"), ("POST", "files/upload")):
        # As it is, which requests would not send.
        connection = http.client.HTTPConnection(info.host, info.port, timeout=30)
        connection.request(method, f"{place}/{path}?{query}", '{"properties": {"code": "1"}}', headers)
        answer = connection.getresponse()
        code = json.loads(answer.read())["error"]["code"]
        assert (answer.status, code) == (400, "SessionRequestValidationFailed"), path
        connection.close()


def test_names_that_clients_write_differently_are_the_same(shared: Pool) -> None:
    """What is not quoted is taken as it is; what is left of a name whose end is a fragment is another name."""
    pool = shared.another(identifier="abcd#1")
    pool.value("x = 'one'")
    headers = {"Authorization": f"Bearer {pool.token}"}
    for query in (f"{VERSION}&identifier=abcd%231", f"identifier=%61bcd%231&{VERSION}"):
        url = f"{pool.endpoint}/code/execute?{query}"
        answer = requests.post(url, json={"properties": {"code": "x"}}, headers=headers, timeout=30)
        assert answer.json()["properties"]["result"] == "one"
    lost = requests.post(
        f"{pool.endpoint}/code/execute?identifier=abcd#1&{VERSION}", json={}, headers=headers, timeout=30
    )
    assert error_of(lost) == (400, "SessionRequestValidationFailed")  # for want of what came after the name
    cut = pool.another(identifier="abcd")
    assert cut.value("'x' in globals()") is False
    for one in (pool, cut):
        assert one.call("DELETE", "session").status_code == 204


# --- policies, kernels ---


@pytest.fixture(scope="module")
def two_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("pools")
    add_kernelspec(home, "other", "local-provisioner")
    policies = (
        '--ExecEngine.policies={"brief": {"base": "trusted", "max_execution_seconds": 1, "max_idle_seconds": 33}}'
    )
    with running_host("server", home, UNPROTECTED, policies) as host:
        yield host


def test_a_pool_with_the_name_of_a_kernelspec_is_one_of_its_kernels(two_kernels: Host) -> None:
    identifier = new_identifier()
    for name, kernel in (("other", "other"), ("python3", "python3"), ("anything", "python3")):
        pool = pool_of(two_kernels).another(identifier=identifier, path=f"/sessionPools/{name}")
        pool.value("1")
        assert kernel in {session["kernel_name"] for session in sessions_of(two_kernels, identifier)}
    assert len(sessions_of(two_kernels, identifier)) == 3


def test_a_policy_lowers_what_a_run_and_a_session_may_have(two_kernels: Host) -> None:
    agent = mint(two_kernels, policy="brief")
    pool = pool_of(two_kernels).another(token=agent.token)
    for fields in ({}, {"timeoutInSeconds": 100}):
        answer = pool.run("while True: pass", **fields)
        assert "its time limit of 1 s" in answer["result"]["stderr"]
    [session] = agent.call("GET", "/sessions").json()["sessions"]
    assert session["idle_timeout_seconds"] == 33
    [execution, _] = agent.call("GET", f"/sessions/{session['id']}/executions").json()["executions"]
    assert execution["timeout_seconds"] == 1
    owners = pool_of(two_kernels)
    started = owners.run("1", timeoutInSeconds=100_000)
    record = owner_of(two_kernels).call("GET", f"/executions/{started['id']}").json()
    assert record["timeout_seconds"] == 220


def test_a_pool_that_is_not_utf_8_is_refused_before_its_code_runs(shared: Pool) -> None:
    answer = shared.another(path="/sessionPools/%FF").call(
        "POST", "executions", json={"code": "1", "executionType": "Asynchronous"}
    )
    assert error_of(answer) == (400, "SessionRequestValidationFailed")
