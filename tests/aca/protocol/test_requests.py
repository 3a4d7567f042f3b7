"""Addresses and requests of ACA sessions: which there are, and the exact form they have."""

from __future__ import annotations

import base64
import io
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from jupyter_exec_ext.aca.client.pool_operations import FormSource
from jupyter_exec_ext.aca.protocol.addresses import (
    API_VERSIONS,
    DEFAULT_API_VERSION,
    Family,
    check_endpoint,
    check_host,
    check_identifier,
    family_of,
    session_url,
)
from jupyter_exec_ext.aca.protocol.run_format import RUN_PATHS, RunRequest, run_request_from_json, run_request_to_json
from jupyter_exec_ext.aca.protocol.session_format import ACASessionInfo, session_info_from_json
from jupyter_exec_ext.client.local_files import FileSource
from jupyter_exec_ext.errors import InvalidRequest, PropertiesMissing, UnexpectedAnswer

POOL = "https://westus.dynamicsessions.io/subscriptions/s/resourceGroups/g/sessionPools/p"
OLD, NEW = "2024-02-02-preview", DEFAULT_API_VERSION


def test_every_version_has_its_family() -> None:
    assert {version: family_of(version).value for version in API_VERSIONS} == {
        "2024-02-02-preview": "envelope",
        "2024-08-02-preview": "envelope",
        "2024-10-02-preview": "flat",
        "2025-02-02-preview": "flat",
        "2025-10-02-preview": "flat",
    }
    for unknown in ("", "2024-09-01", "2025-10-02", "latest", "x" * 1000):
        with pytest.raises(InvalidRequest, match="known are 2024-02-02-preview") as caught:
            family_of(unknown)
        assert len(str(caught.value)) < 300


def test_an_identifier_is_taken_as_it_is_or_refused() -> None:
    for good in ("abcd", "x" * 128, "0b6c9cbf-0000-4000-8000-000000000000", "_|{}[]:\";'<>?/.,@#$%^&*()-+=!~`"):
        assert check_identifier(good) == good
    for bad in ("", "abc", "x" * 129, "ab cd", "abcd\n", "ab\\cd", "abcé", "ab\0cd", "abcd ", "\uff41bcd"):
        with pytest.raises(InvalidRequest, match="4 to 128"):
            check_identifier(bad)


@pytest.mark.parametrize("tail", ["", "/", "//", "/python/execute", "/python/execute/"])
def test_an_endpoint_loses_what_does_not_belong_to_it(tail: str) -> None:
    assert check_endpoint(f" {POOL}{tail}\n") == POOL


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "pool", "ftp://a.dynamicsessions.io", "https://", "https://a:0", "https://a:99999", "https://[::1"),
        *("https://u@a", "https://u:p@a", "https://@a", f"{POOL}?x=1", f"{POOL}#f", "https://a?", "https://a#"),
    ],
)
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidRequest, match="must be like"):
        check_endpoint(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "allowed"),
    [
        (POOL, True),
        ("https://p.env.westus.azurecontainerapps.io", False),
        ("http://localhost:8888/exec/aca", True),
        ("http://127.0.0.1:1/x", True),
        ("https://[::1]:1/x", True),
        ("https://dynamicsessions.io", False),
        ("https://.dynamicsessions.io", False),
        ("https://evildynamicsessions.io", False),
        ("https://a.dynamicsessions.io.evil.org", False),
        ("https://evil.org\\.dynamicsessions.io", False),
        ("https://evil.org%00.dynamicsessions.io", False),
        ("https://evil.org .dynamicsessions.io", False),
        ("http://a.dynamicsessions.io", False),
        ("http://127.0.0.2", False),
        ("https://0x7f.1", False),
        ("https://[fe80::1%25eth0]", False),
    ],
)
def test_a_token_goes_to_the_allowed_hosts_alone(endpoint: str, allowed: bool) -> None:
    if allowed:
        assert check_host(endpoint) == endpoint
    else:
        with pytest.raises(InvalidRequest):
            check_host(endpoint)


def test_an_address_keeps_every_parameter_apart() -> None:
    assert session_url(POOL, "executions", "abcd", NEW) == f"{POOL}/executions?identifier=abcd&api-version={NEW}"
    url = session_url(POOL, "files", "a&api-version=x#/ +%2F".replace(" ", ""), NEW, path="d i/r")
    assert parse_qs(urlsplit(url).query, strict_parsing=True) == {
        "identifier": ["a&api-version=x#/+%2F"],
        "api-version": [NEW],
        "path": ["d i/r"],
    }
    assert session_url(POOL, "metadata", None, NEW) == f"{POOL}/metadata?api-version={NEW}"
    with pytest.raises(InvalidRequest):
        session_url(POOL, "files", "a b c", NEW)


# --- requests ---

INLINE = {"codeInputType": "inline", "executionType": "synchronous"}


@pytest.mark.parametrize(
    ("request_", "version", "body"),
    [
        (RunRequest("1"), OLD, {"properties": {**INLINE, "code": "1"}}),
        (RunRequest("1", 60), OLD, {"properties": {**INLINE, "code": "1", "timeoutInSeconds": 60}}),
        (RunRequest("1", 60, False, 9, True), OLD, {"properties": {**INLINE, "code": "1", "timeoutInSeconds": 60}}),
        (RunRequest("1"), "2024-10-02-preview", {**INLINE, "code": "1"}),
        (RunRequest("1", None, False, 9, True), "2025-02-02-preview", {**INLINE, "code": "1"}),
        (RunRequest("1", asynchronous=True), NEW, {**INLINE, "executionType": "asynchronous", "code": "1"}),
        (
            RunRequest("1", 7, False, 9, True),
            NEW,
            {**INLINE, "code": "1", "timeoutInSeconds": 7, "outputStreamsMaxLength": 9}
            | {"returnJupyterFormatExecutionResult": True},
        ),
    ],
)
def test_a_request_has_its_versions_form(request_: RunRequest, version: str, body: dict[str, Any]) -> None:
    assert run_request_to_json(request_, version) == body
    again = run_request_from_json(json.loads(json.dumps(body)), family_of(version))
    assert (again.code, again.timeout_seconds, again.asynchronous) == (
        request_.code,
        request_.timeout_seconds,
        request_.asynchronous,
    )


def test_the_envelope_family_has_no_asynchronous_runs() -> None:
    with pytest.raises(InvalidRequest, match="asynchronous"):
        run_request_to_json(RunRequest("1", asynchronous=True), OLD)
    assert RUN_PATHS == {Family.ENVELOPE: "code/execute", Family.FLAT: "executions"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"code": "1", "codeInputType": "Inline", "executionType": "Synchronous"}, RunRequest("1")),
        ({"code": "1", "codeInputType": "INLINETEXT", "executionType": "Asynchronous"}, RunRequest("1", None, True)),
        ({"code": base64.b64encode("é".encode()).decode(), "codeInputType": "inlineBase64"}, RunRequest("é")),
        ({"pythonCode": "1", "identifier": "abcd", "unknown": {}}, RunRequest("1")),
        ({"code": "", "timeoutInSeconds": None, "returnJupyterFormat": True}, RunRequest("", jupyter_format=True)),
        ({"code": "1", "outputStreamsMaxLength": 5, "timeoutInSeconds": 2}, RunRequest("1", 2, False, 5)),
    ],
)
@pytest.mark.parametrize("family", Family)
def test_what_clients_send_is_read(fields: dict[str, Any], expected: RunRequest, family: Family) -> None:
    body = {"properties": fields} if family is Family.ENVELOPE else fields
    assert run_request_from_json(body, family) == expected


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, PropertiesMissing),
        ({"code": 1}, PropertiesMissing),
        ({"shellCommand": "ls"}, PropertiesMissing),
        ({"code": "1", "execCommandAndArgs": []}, PropertiesMissing),
        ({"code": "1", "codeInputType": "file"}, InvalidRequest),
        ({"code": "1", "codeInputType": 1}, InvalidRequest),
        ({"code": "1", "executionType": "later"}, InvalidRequest),
        ({"code": "'\ud800'"}, InvalidRequest),
        ({"pythonCode": "'\udfff'", "codeInputType": "InlineText"}, InvalidRequest),
        ({"code": "1", "pythonCode": {}}, PropertiesMissing),
        ({"code": "%", "codeInputType": "InlineBase64"}, InvalidRequest),
        ({"code": "/w==", "codeInputType": "InlineBase64"}, InvalidRequest),
        *(({"code": "1", "timeoutInSeconds": bad}, InvalidRequest) for bad in (0, -1, 1.5, True, "60", 2**31)),
        ({"code": "1", "outputStreamsMaxLength": 0}, InvalidRequest),
        ({"code": "1", "returnJupyterFormat": 1}, InvalidRequest),
    ],
)
@pytest.mark.parametrize("family", Family)
def test_what_is_no_request_is_refused(fields: dict[str, Any], error: type[Exception], family: Family) -> None:
    with pytest.raises(error) as caught:
        run_request_from_json({"properties": fields} if family is Family.ENVELOPE else fields, family)
    assert type(caught.value) is error


@pytest.mark.parametrize("family", Family)
def test_the_other_familys_form_is_refused_as_such(family: Family) -> None:
    flat = {**INLINE, "code": "1"}
    other = flat if family is Family.ENVELOPE else {"properties": flat}
    bodies: tuple[Any, ...] = (other, [], None, "x", {"properties": None})
    for body in bodies:
        with pytest.raises(PropertiesMissing):
            run_request_from_json(body, family)


# --- sessions and forms ---


@pytest.mark.parametrize("word", ["expireAt", "expiresAt"])
def test_a_session_is_read_with_either_word_for_its_end(word: str) -> None:
    data = {"identifier": "abcd", "createdAt": "c", "lastAccessedAt": "l", word: "e", "etag": "1"}
    assert session_info_from_json(data) == ACASessionInfo("abcd", "c", "l", "e")
    assert session_info_from_json({"identifier": "abcd", word: None}) == ACASessionInfo("abcd")
    wrong: tuple[Any, ...] = (None, [], {}, {"identifier": 1})
    for bad in wrong:
        with pytest.raises(UnexpectedAnswer):
            session_info_from_json(bad)


def test_a_form_escapes_the_file_name_as_browsers_do() -> None:
    form = FormSource(FileSource(io.BytesIO(b"content")), "file", 'a "b"\r\nX: ü.txt')
    form.rewind()
    body = b"".join(iter(form.read, b""))
    boundary = form.content_type.removeprefix("multipart/form-data; boundary=").encode()
    assert body == (
        b"--" + boundary + b'\r\nContent-Disposition: form-data; name="file"; '
        b'filename="a %22b%22%0D%0AX: \xc3\xbc.txt"\r\nContent-Type: text/plain\r\n\r\ncontent\r\n'
        b"--" + boundary + b"--\r\n"
    )
    assert form.size_bytes in (None, len(body))


def test_no_two_forms_have_the_same_boundary() -> None:
    assert len({FormSource(FileSource(io.BytesIO()), "file", "a").content_type for _ in range(100)}) == 100
