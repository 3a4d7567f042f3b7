"""Requests that no client of ours would send: each is answered with 4xx and a sentence that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.support.hosts import Host


@pytest.fixture(scope="session")
def session_id(host: Host) -> str:
    answer = requests.post(f"{host.info.url}exec/v1/sessions", headers=host.info.auth_headers, timeout=60)
    assert answer.status_code == 201
    assert answer.headers["Location"].endswith(f"/exec/v1/sessions/{answer.json()['id']}")
    return str(answer.json()["id"])


def post(host: Host, path: str, body: str | bytes, content_type: str = "application/json") -> requests.Response:
    headers = {**host.info.auth_headers, "Content-Type": content_type}
    data = body.encode() if isinstance(body, str) else body
    return requests.post(f"{host.info.url}exec/v1/{path}", data=data, headers=headers, timeout=60)


def assert_refused(answer: requests.Response, status: int, code: str, words: str = "") -> None:
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code)
    assert set(body) == {"message", "reason", "code", "request_id"}
    assert words in body["message"]
    assert "Traceback" not in answer.text
    assert answer.headers["X-Request-Id"] == body["request_id"]


def test_a_session_request_may_be_missing_but_not_null(host: Host, session_id: str) -> None:
    assert_refused(post(host, "sessions", "null"), 400, "invalid_request", "object")


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "body",
    ["{", "nope", '{"code": "1"', b"\xff\xfe", '{"code": NaN}', '{"code": "1", "metadata": {"x": 1e999}}', DEEP],
    ids=["open", "word", "cut", "not utf-8", "nan", "infinity", "deep"],
)
def test_what_is_not_json_is_refused(host: Host, session_id: str, body: str | bytes) -> None:
    assert_refused(post(host, f"sessions/{session_id}/executions", body), 400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "JSON object"),
        ("text", "JSON object"),
        ({}, "'code' is missing"),
        ({"code": 1}, "'code' must be a string"),
        ({"code": ["1"]}, "'code' must be a string"),
        ({"code": "print('\ud800')"}, "'code' must be valid Unicode"),
        ({"code": "1 # \udce9"}, "'code' must be valid Unicode"),
        ({"code": "1", "timeout": 5}, "did you mean 'timeout_seconds'?"),
        ({"code": "1", "timeout_seconds": 0}, "'timeout_seconds' must be"),
        ({"code": "1", "timeout_seconds": -1}, "'timeout_seconds' must be"),
        ({"code": "1", "timeout_seconds": "5"}, "'timeout_seconds' must be"),
        ({"code": "1", "timeout_seconds": True}, "'timeout_seconds' must be"),
        ({"code": "1", "timeout_seconds": 10**400}, "'timeout_seconds' must be"),
        ({"code": "1", "timeout_seconds": 1e10}, "greater than 0 and at most 1000000000"),
        ({"code": "1", "metadata": []}, "'metadata' must be a JSON object"),
        ({"code": "1", "metadata": {"deep": json.loads("[" * 40 + "]" * 40)}}, "'metadata' may be nested"),
        ({"code": "1", "metadata": {"long": "x" * 70_000}}, "'metadata' may have at most"),
        ({"code": "1", "allow_input": "yes"}, "'allow_input' must be true or false"),
        ({"code": "1", "language": "x" * 65}, "'language' must be"),
        ({"code": "1", "\r\nInjected: yes": 1}, "unknown field"),
    ],
)
def test_an_execution_request_is_checked_field_by_field(host: Host, session_id: str, body: Any, words: str) -> None:
    assert_refused(post(host, f"sessions/{session_id}/executions", json.dumps(body)), 400, "invalid_request", words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kernel_name": 1}, "'kernel_name' must be"),
        ({"name": "x" * 257}, "'name' must be"),
        ({"env": {"A": 1}}, "'A' must be a string"),
        ({"env": {"1A": "x"}}, "not a valid variable name"),
        ({"env": {"A": "x\0y"}}, "without NUL"),
        ({"env": {"A": "\ud800"}}, "valid Unicode"),
        ({"env": {f"A{i}": "" for i in range(1001)}}, "'env' may have at most"),
        ({"env": {"A": "x" * 100_000}}, "'env' may have at most"),
        ({"x" * 1_000_000: 1}, "unknown field"),
        ({"idle_timeout_seconds": -1}, "'idle_timeout_seconds' must be"),
        ({"kernel": "python3"}, "did you mean 'kernel_id'?"),
        ({"cwd": "/"}, "a directory below the session's"),
        ({"shell": "/bin/sh"}, "unknown field 'shell'"),
    ],
)
def test_a_session_request_is_checked_field_by_field(host: Host, body: Any, words: str) -> None:
    assert_refused(post(host, "sessions", json.dumps(body)), 400, "invalid_request", words)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_must_be_declared_as_json(host: Host, session_id: str, content_type: str) -> None:
    answer = post(host, f"sessions/{session_id}/executions", '{"code": "1"}', content_type)
    assert_refused(answer, 415, "unsupported_media_type", "Content-Type")


def test_a_body_beyond_the_limit_is_refused(host: Host, session_id: str) -> None:
    body = b'{"code": "' + b"#" * (16 * 1024 * 1024) + b'"}'
    try:
        answer = post(host, f"sessions/{session_id}/executions", body)
    except requests.ConnectionError:
        return  # refused by its Content-Length, the connection closed while we still sent
    if (host.name, answer.status_code) != ("hub", 503):  # the proxy's word for a server that hung up
        assert_refused(answer, 413, "payload_too_large")


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1.5", "after=" + "9" * 30])
def test_a_malformed_cursor_is_refused(host: Host, session_id: str, query: str) -> None:
    execution = post(host, f"sessions/{session_id}/executions", '{"code": "1"}').json()
    url = f"{host.info.url}exec/v1/executions/{execution['id']}/events?{query}"
    for header in ({}, {"Last-Event-ID": "1"}):
        answer = requests.get(url, headers={**host.info.auth_headers, **header}, timeout=30)
        assert_refused(answer, 400, "invalid_request", "'after'")


@pytest.mark.parametrize("number", ["-1", "x", "1.5", "\xb2", "9" * 17])
def test_a_malformed_last_event_id_is_refused(host: Host, session_id: str, number: str) -> None:
    execution = post(host, f"sessions/{session_id}/executions", '{"code": "1"}').json()
    url = f"{host.info.url}exec/v1/executions/{execution['id']}/events"
    headers: dict[str, str | bytes] = {**host.info.auth_headers, "Last-Event-ID": number.encode("latin-1")}
    answer = requests.get(url, headers=headers, timeout=30)
    assert_refused(answer, 400, "invalid_request", "'Last-Event-ID'")


@pytest.mark.parametrize("value", ["yes", "", "2", "null", "%00", "%FF"])
def test_a_flag_is_true_or_false(host: Host, session_id: str, value: str) -> None:
    for path, name in (("sessions", "ended"), (f"sessions/{session_id}/files", "sha256")):
        url = f"{host.info.url}exec/v1/{path}?{name}="
        refused = requests.get(url + value, headers=host.info.auth_headers, timeout=30)
        assert_refused(refused, 400, "invalid_request", "" if value == "%FF" else f"'{name}' must be true or false")
        for fine in ("true", "false", "True", "1", "0"):
            assert requests.get(url + fine, headers=host.info.auth_headers, timeout=30).status_code == 200


@pytest.mark.parametrize("path", ["nope", "sessions/a/b/c", "sessions/../..%2f", "execution", "sessions/%00"])
def test_a_path_that_does_not_exist_is_not_found(host: Host, path: str) -> None:
    answer = requests.get(f"{host.info.url}exec/v1/{path}", headers=host.info.auth_headers, timeout=30)
    assert answer.status_code == 404


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
def test_a_method_that_does_not_exist_is_refused_with_those_there_are(host: Host, method: str) -> None:
    answer = requests.request(method, f"{host.info.url}exec/v1/", headers=host.info.auth_headers, timeout=30)
    assert_refused(answer, 405, "method_not_allowed", "GET")
    assert answer.headers["Allow"] == "GET"


def test_respond_async_answers_at_once_with_where_to_look(host: Host, session_id: str) -> None:
    url = f"{host.info.url}exec/v1/sessions/{session_id}/executions"
    headers = {**host.info.auth_headers, "Prefer": "respond-async"}
    answer = requests.post(url, json={"code": "import time; time.sleep(0.5); 1"}, headers=headers, timeout=30)
    assert answer.status_code == 202
    assert answer.headers["Location"].endswith(answer.json()["id"])
    waited = requests.get(
        f"{host.info.url}exec/v1/executions/{answer.json()['id']}",
        headers={**host.info.auth_headers, "Prefer": "wait=10"},
        timeout=30,
    )
    assert waited.json()["state"] == "ok"


def test_a_request_id_of_ones_own_is_used_if_it_is_harmless(host: Host) -> None:
    for asked, used in (("my-id.1", True), ("a b", False), ("x" * 65, False)):
        headers = {**host.info.auth_headers, "X-Request-Id": asked}
        answer = requests.get(f"{host.info.url}exec/v1/", headers=headers, timeout=30)
        assert (answer.headers["X-Request-Id"] == asked) is used


def test_answers_are_not_cached_nor_sniffed(host: Host) -> None:
    answer = requests.get(f"{host.info.url}exec/v1/", headers=host.info.auth_headers, timeout=30)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
