"""Answers of ACA sessions: results, values, files and errors, as written, as read, and as others write them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from jupyter_exec_ext.aca.protocol.addresses import Family
from jupyter_exec_ext.aca.protocol.error_format import error_from_answer, error_to_json
from jupyter_exec_ext.aca.protocol.file_format import (
    ACAFile,
    content_address,
    file_address,
    file_from_json,
    file_to_json,
    files_from_json,
    files_to_json,
    join_path,
    path_of_form_name,
    relative_path,
    upload_address,
)
from jupyter_exec_ext.aca.protocol.run_format import (
    RunResult,
    RunStatus,
    bundle_of,
    image_of,
    run_result_from_json,
    run_result_to_json,
    value_of,
)
from jupyter_exec_ext.errors import (
    ClientError,
    Conflict,
    ExecError,
    FileNotFound,
    Forbidden,
    InternalError,
    InvalidRequest,
    LimitReached,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    PropertiesMissing,
    SessionNotFound,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)

MODIFIED = "2026-01-02T03:04:05.1234567Z"
PNG = base64.b64encode(b"\x89PNG").decode()
IMAGE = {"type": "image", "format": "png", "base64_data": PNG}
ENVELOPE, FLAT = Family.ENVELOPE, Family.FLAT

# --- values: contract 5.4 ---


@pytest.mark.parametrize(
    ("text", "value", "jupyter"),
    [
        (None, "", None),
        ("2", 2, "2"),
        ("-7", -7, "-7"),
        ("1.5", 1.5, "1.5"),
        ("1e-07", 1e-07, "1e-07"),
        ("1e+20", 1e20, "1e+20"),
        ("True", True, "True"),
        ("False", False, "False"),
        ("nan", None, "nan"),
        ("inf", None, "inf"),
        ("-inf", None, "-inf"),
        ("1e999", None, "1e999"),
        ("'nan'", "nan", "'nan'"),
        ("''", "", "''"),
        ('"it\'s"', "it's", '"it\'s"'),
        ("'a\\nb'", "a\nb", "'a\\nb'"),
        ("['a',\n 'b']", "['a',\n 'b']", "['a',\n 'b']"),
        ("{'a': 1}", "{'a': 1}", "{'a': 1}"),
        ("(1, 2)", "(1, 2)", "(1, 2)"),
        ("b'x'", "b'x'", "b'x'"),
        ("(1+2j)", "(1+2j)", "(1+2j)"),
        ("007", "007", "007"),
        ("'torn", "'torn", "'torn"),
        ("'a' 'b' x", "'a' 'b' x", "'a' 'b' x"),
        ("<object at 0x1>", "<object at 0x1>", "<object at 0x1>"),
        ("9" * 5000, "9" * 5000, "9" * 5000),
    ],
)
def test_every_kind_of_value(text: str | None, value: Any, jupyter: Any) -> None:
    got = value_of(text)
    assert (type(got), got) == (type(value), value)
    assert value_of(text, jupyter_format=True) == jupyter
    json.dumps(got, allow_nan=False)


@pytest.mark.parametrize("text", ["1" * 10**6 + "x", "1." * 10**6, "1e" * 10**6, "''," * 10**6, "'" + "\\x" * 10**6])
def test_hostile_text_is_looked_at_once(text: str) -> None:
    began = time.process_time()
    assert value_of(text) == text
    assert time.process_time() - began < 5  # with a look back at each character it is hours


def test_a_picture_is_an_object_on_one_line() -> None:
    assert value_of("<Figure>", f"{PNG[:4]}\n{PNG[4:]}\n") == IMAGE
    assert image_of(IMAGE) == ("image/png", b"\x89PNG")
    assert image_of({**IMAGE, "format": "JPG"}) == ("image/jpeg", b"\x89PNG")
    assert image_of({**IMAGE, "format": "svg"}) == ("image/svg+xml", b"\x89PNG")
    for other in ({"base64_data": 1}, {"base64_data": "a"}, {"base64_data": "é"}, "x", None, {}):
        assert image_of(other) is None


@pytest.mark.parametrize(
    ("value", "bundle"),
    [
        ("", None),
        (None, None),
        (2, {"text/plain": "2"}),
        (True, {"text/plain": "True"}),
        ("text", {"text/plain": "text"}),
        (IMAGE, {"image/png": PNG, "text/plain": "<picture>"}),
    ],
)
def test_a_value_is_shown_as_a_bundle(value: Any, bundle: Any) -> None:
    assert bundle_of(value) == bundle


# --- results ---

RESULT = RunResult(RunStatus.SUCCEEDED, "out", "err", 2, 35, "e1", "abcd")


def test_a_result_has_its_familys_form() -> None:
    assert run_result_to_json(RESULT, ENVELOPE) == {
        "$id": "1",
        "properties": {
            "$id": "2",
            "status": "Success",
            "stdout": "out",
            "stderr": "err",
            "result": 2,
            "executionResult": 2,
            "executionTimeInMilliseconds": 35,
        },
    }
    assert run_result_to_json(RESULT, FLAT) == {
        "$id": "1",
        "id": "e1",
        "identifier": "abcd",
        "executionType": "Synchronous",
        "status": "Succeeded",
        "result": {
            "$id": "2",
            "stdout": "out",
            "stderr": "err",
            "executionResult": 2,
            "executionTimeInMilliseconds": 35,
        },
    }


@pytest.mark.parametrize("status", RunStatus)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("value", ["", 2, 1.5, True, None, "text", IMAGE])
def test_what_is_written_is_read(status: RunStatus, family: Family, value: Any) -> None:
    again = run_result_from_json(json.loads(json.dumps(run_result_to_json(RunResult(status, value=value), family))))
    if family is FLAT:
        assert again.status is status
        assert again.value == (value if status.finished else "")
    else:
        assert again.status is (RunStatus.SUCCEEDED if status is RunStatus.SUCCEEDED else RunStatus.FAILED)
        assert (again.value, type(again.value)) == (value, type(value))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # As recorded of the service, by family.
        (
            {"$id": "1", "properties": {"$id": "2", "status": "Success", "stdout": "hi\n", "stderr": "", "result": ""}},
            RunResult(RunStatus.SUCCEEDED, "hi\n"),
        ),
        (
            {"status": "Succeeded", "result": {"stdout": "hi\n", "stderr": "", "executionResult": ""}},
            RunResult(RunStatus.SUCCEEDED, "hi\n"),
        ),
        # The Node.js tutorial's: the other name in the envelope.
        ({"properties": {"status": "Success", "executionResult": 3}}, RunResult(RunStatus.SUCCEEDED, value=3)),
        # A picture is no nested result.
        ({"properties": {"status": "success", "result": IMAGE}}, RunResult(RunStatus.SUCCEEDED, value=IMAGE)),
        ({"status": "succeeded", "result": {"executionResult": IMAGE}}, RunResult(RunStatus.SUCCEEDED, value=IMAGE)),
        ({"status": "Failed", "result": {"stderr": "Trace"}}, RunResult(RunStatus.FAILED, stderr="Trace")),
        ({"properties": {"status": "Failure", "stderr": "Trace"}}, RunResult(RunStatus.FAILED, stderr="Trace")),
        ({"status": "Failed", "error": {"message": "why"}}, RunResult(RunStatus.FAILED, stderr="why")),
        ({"status": "Failed", "error": {"error": {"message": "why"}}}, RunResult(RunStatus.FAILED, stderr="why")),
        ({"status": "RUNNING", "id": "e1"}, RunResult(RunStatus.RUNNING, id="e1")),
        ({"status": "Succeeded", "result": None}, RunResult(RunStatus.SUCCEEDED, value=None)),
    ],
)
def test_answers_of_others_are_read(data: Any, expected: RunResult) -> None:
    assert run_result_from_json(data) == expected


@pytest.mark.parametrize("data", [None, [], "x", {}, {"status": 1}, {"status": "0"}, {"properties": {}}])
def test_what_is_no_result_is_refused(data: Any) -> None:
    with pytest.raises(UnexpectedAnswer):
        run_result_from_json(data)


# --- files: contract 6 ---


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.txt", "a.txt"),
        ("/mnt/data/a.txt", "a.txt"),
        ("/mnt/data/d/a.txt", "d/a.txt"),
        ("mnt/data/a.txt", "mnt/data/a.txt"),
        ("a b-_.@$&=;,#%^().txt", "a b-_.@$&=;,#%^().txt"),
        ("日本.txt", "日本.txt"),
    ],
)
def test_a_name_is_relative_to_the_data_directory(name: str, path: str) -> None:
    assert relative_path(name) == path


@pytest.mark.parametrize(
    "name", ["", "/", "/etc/passwd", "/mnt/data", "/mnt/data/", "/mnt/data/../x", "../x", "a/../b"]
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        relative_path(name)


@pytest.mark.parametrize(
    ("sent", "directory", "path"),
    [
        ("t%201.txt", "", "t 1.txt"),  # aiohttp quotes
        ("%E6%97%A5.txt", "", "日.txt"),
        ("t 1%20.txt", "", "t 1%20.txt"),  # requests does not
        ("100%.txt", "", "100%.txt"),
        ("%FF.txt", "", "%FF.txt"),
        ("/mnt/data/a.txt", "", "a.txt"),
        ("a.txt", "/mnt/data", "a.txt"),
        ("a.txt", "d/", "d/a.txt"),
        ("a.txt", "/mnt/data/d", "d/a.txt"),
    ],
)
def test_an_uploads_name_is_understood(sent: str, directory: str, path: str) -> None:
    assert path_of_form_name(sent, directory) == path


def test_an_escape_leads_out_of_nothing() -> None:
    assert path_of_form_name("%2e%2e/x") == "%2e%2e/x"  # with a slash it was not quoted
    for name in ("%2e%2e", "..%2Fx", "%2Fetc%2Fpasswd"):
        with pytest.raises(InvalidRequest):
            path_of_form_name(name)
    with pytest.raises(InvalidRequest):
        join_path("../d", "a")


@pytest.mark.parametrize(
    ("path", "family", "content", "file", "upload"),
    [
        (
            "a b#.txt",
            ENVELOPE,
            ("files/content/a%20b%23.txt", {}),
            "files/a%20b%23.txt",
            ("files/upload", {}, "a b#.txt"),
        ),
        ("d/a", ENVELOPE, ("files/content/d/a", {}), "files/d/a", ("files/upload", {}, "d/a")),
        ("a?.txt", FLAT, ("files/a%3F.txt/content", {}), "files/a%3F.txt", ("files", {}, "a?.txt")),
        ("d e/f/a", FLAT, ("files/a/content", {"path": "d e/f"}), "files/a", ("files", {"path": "d e/f"}, "a")),
    ],
)
def test_a_file_has_its_address(path: str, family: Family, content: Any, file: str, upload: Any) -> None:
    assert content_address(path, family) == content
    assert file_address(path, family) == (file, content[1])
    assert upload_address(path, family) == upload


def test_a_file_has_its_familys_form() -> None:
    file = ACAFile("d/a.txt", 7, MODIFIED, "text/plain")
    assert file_to_json(file, ENVELOPE) == {
        "$id": "1",
        "properties": {"$id": "2", "filename": "d/a.txt", "size": 7, "lastModifiedTime": MODIFIED},
    }
    assert file_to_json(file, FLAT) == {
        "name": "a.txt",
        "type": "file",
        "contentType": "text/plain",
        "sizeInBytes": 7,
        "lastModifiedAt": MODIFIED,
        "directory": "d",
    }
    ids = [item["$id"] for item in files_to_json([file, file], ENVELOPE)["value"]]
    assert ids == ["2", "4"]
    for family in Family:
        (again,), link = files_from_json(files_to_json([file], family))
        assert (again.path, again.size_bytes, again.last_modified, link) == ("d/a.txt", 7, MODIFIED, None)


@pytest.mark.parametrize(
    ("data", "directory", "file"),
    [
        ({"properties": {"filename": "/mnt/data/a", "size": 1}}, "", ACAFile("a", 1)),
        ({"name": "a", "type": "", "contentType": "", "lastModifiedAt": MODIFIED}, "", ACAFile("a", 0, MODIFIED)),
        ({"name": "d", "type": "Directory", "sizeInBytes": 4096}, "", ACAFile("d", 4096, is_directory=True)),
        ({"name": "a", "directory": "/mnt/data/d"}, "", ACAFile("d/a")),
        ({"name": "a", "directory": ""}, "d", ACAFile("d/a")),
        ({"name": "a", "sizeInBytes": "7"}, "", ACAFile("a")),
    ],
)
def test_files_of_others_are_read(data: Any, directory: str, file: ACAFile) -> None:
    assert file_from_json(data, directory) == file


def test_a_list_may_go_on() -> None:
    assert files_from_json({"value": [], "nextLink": "https://x"}) == ([], "https://x")
    for end in ({}, {"nextLink": None}, {"nextLink": ""}, {"nextLink": 1}):
        assert files_from_json({"value": [], **end}) == ([], None)
    wrong: tuple[Any, ...] = (None, {}, {"value": {}}, {"value": [1]}, {"value": [{}]}, {"value": [{"name": ""}]})
    with pytest.raises(UnexpectedAnswer, match="answered a file list with something else; is this a session pool"):
        files_from_json({"value": {}})
    for bad in wrong:
        with pytest.raises(UnexpectedAnswer):
            files_from_json(bad)


# --- errors: contract 8.1 ---


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "SessionPropertiesMissing", PropertiesMissing),
        (400, "SessionRequestValidationFailed", InvalidRequest),
        (400, "SessionRequestNotSupported", InvalidRequest),
        (400, "SessionWithIdentifierNotFound", SessionNotFound),
        (404, "SessionWithIdentifierNotFound", SessionNotFound),
        (404, "FileNotFound", FileNotFound),
        (401, "", Unauthenticated),
        (403, "", Forbidden),
        (404, "", NotFound),
        (409, "", Conflict),
        (413, "", PayloadTooLarge),
        (418, "", ClientError),
        (429, "", LimitReached),
        (500, "", InternalError),
        (502, "", Unavailable),
        (503, "", Unavailable),
        (504, "", Unavailable),
    ],
)
def test_an_error_is_read_as_its_class(status: int, code: str, kind: type[ExecError]) -> None:
    body = json.dumps({"error": {"code": code, "message": "said", "target": "t", "traceId": "x"}}).encode()
    error = error_from_answer(status, body, retry_after_seconds=3)
    assert type(error) is kind
    assert "said (target: t)" in str(error)
    if kind is not SessionNotFound:
        assert f"HTTP {status}" in str(error)
        assert error.retry_after_seconds == 3


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff", b"[]", b"null", b"1", b'{"error": 1}', b'{"error": {"code": 1}}', b"[" * 9999]
)
def test_an_error_without_a_readable_body_is_one_all_the_same(body: bytes) -> None:
    for status in (400, 401, 403, 404, 409, 413, 429, 500, 503):
        assert f"HTTP {status}" in str(error_from_answer(status, body))


def test_a_long_body_is_not_repeated_in_full() -> None:
    assert len(str(error_from_answer(500, b"x" * 10**6))) < 3000
    assert len(str(error_from_answer(500, json.dumps({"error": {"message": "x" * 10**6}}).encode()))) < 3000


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PropertiesMissing("m"), 400, "SessionPropertiesMissing"),
        (InvalidRequest("m"), 400, "SessionRequestValidationFailed"),
        (SessionNotFound("m"), 400, "SessionWithIdentifierNotFound"),
        (MethodNotAllowed("m"), 400, "SessionRequestNotSupported"),
        (FileNotFound("m"), 404, "FileNotFound"),
        (Unauthenticated("m"), 401, "Unauthorized"),
        (Forbidden("m"), 403, "Forbidden"),
        (Conflict("m"), 409, "Conflict"),
        (PayloadTooLarge("m"), 413, "PayloadTooLarge"),
        (LimitReached("m"), 429, "TooManyRequests"),
        (Unavailable("m"), 503, "ServiceUnavailable"),
        (InternalError("m"), 500, "InternalServerError"),
    ],
)
def test_an_error_is_written_in_the_services_words(error: ExecError, status: int, code: str) -> None:
    assert error_to_json(error, trace_id="t") == (
        status,
        code,
        {"error": {"code": code, "message": "m", "traceId": "t"}},
    )
    assert "traceId" not in error_to_json(error)[2]["error"]
