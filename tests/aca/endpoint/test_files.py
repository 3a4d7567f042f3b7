"""Files in sessions of the endpoint for ACA clients: as each of them sends and asks for them, and as nobody may."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.bearers import mint, owner_of
from tests.support.hosts import MAX_FILE_BYTES, Host
from tests.support.pool_clients import ENVELOPE, FLAT, Pool, error_of, pool_of


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture
def pool(host: Host) -> Iterator[Pool]:
    pool = pool_of(host)
    yield pool
    pool.call("DELETE", "session")


def names(pool: Pool, version: str = ENVELOPE, **query: str) -> list[str]:
    listed = pool.call("GET", "files", version, query=query).json()["value"]
    return [item["properties"]["filename"] if version == ENVELOPE else item["name"] for item in listed]


def test_files_go_up_and_down_in_the_envelope_family(pool: Pool) -> None:
    content = bytes(range(256)) * 1000
    [told] = pool.upload("a b.txt", content, ENVELOPE).json()["value"]
    properties = told["properties"]
    assert (properties["filename"], properties["size"]) == ("a b.txt", len(content))
    assert properties["lastModifiedTime"].endswith("Z")
    [listed] = pool.call("GET", "files", ENVELOPE).json()["value"]
    assert listed["properties"]["filename"] == "a b.txt"
    assert pool.call("GET", "files/a%20b.txt", ENVELOPE).json()["properties"]["size"] == len(content)
    answer = pool.call("GET", "files/content/a%20b.txt", ENVELOPE)
    assert (answer.content, answer.headers["Content-Type"]) == (content, "application/octet-stream")
    deleted = pool.call("DELETE", "files/a%20b.txt", ENVELOPE)
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert names(pool) == []


def test_files_go_up_and_down_in_the_flat_family(pool: Pool) -> None:
    told = pool.upload("a.txt", b"hello").json()
    assert (told["name"], told["type"], told["sizeInBytes"]) == ("a.txt", "file", 5)
    assert (told["contentType"], told["directory"]) == ("text/plain; charset=utf-8", "")
    assert pool.call("GET", "files").json() == {"value": [told]}
    assert pool.call("GET", "files/a.txt").json() == told
    assert pool.call("GET", "files/a.txt/content").content == b"hello"
    assert pool.call("DELETE", "files/a.txt").status_code == 204
    for operation in ("files/a.txt", "files/a.txt/content", "files/content/a.txt"):
        assert error_of(pool.call("GET", operation)) == (404, "FileNotFound")


def test_code_and_files_are_in_one_place(pool: Pool) -> None:
    pool.upload("in.txt", b"x")
    assert pool.value("open('/mnt/data/in.txt').read() + open('in.txt').read()") == "xx"
    pool.value("open('/mnt/data/out.txt', 'w').write('y')")
    assert pool.call("GET", "files/out.txt/content").content == b"y"


def test_directories_are_named_relatively_and_absolutely(pool: Pool) -> None:
    assert pool.upload("/mnt/data/d/e/one", b"1", ENVELOPE).status_code == 200
    assert pool.upload("two", b"22", path="d").json()["directory"] == "d"
    assert pool.upload("three", b"333", path="/mnt/data/d/").json()["directory"] == "d"
    assert names(pool) == ["d/e/one", "d/three", "d/two"]
    [directory] = pool.call("GET", "files").json()["value"]
    assert (directory["name"], directory["type"], directory["sizeInBytes"]) == ("d", "directory", 4096)
    assert sorted(names(pool, FLAT, path="d")) == ["e", "three", "two"]
    assert sorted(names(pool, FLAT, path="/mnt/data/d", recursive="true")) == ["one", "three", "two"]
    assert pool.call("GET", "files/one/content", query={"path": "/mnt/data/d/e"}).content == b"1"
    assert pool.call("GET", "files/content/d/e/one", ENVELOPE).content == b"1"
    assert pool.call("GET", "files/two", query={"path": "d"}).json()["sizeInBytes"] == 2
    assert pool.call("GET", "files/e", query={"path": "d"}).json()["type"] == "directory"
    assert pool.call("DELETE", "files/two", query={"path": "d"}).status_code == 204
    assert error_of(pool.call("GET", "files", query={"path": "nowhere"})) == (404, "FileNotFound")


@pytest.mark.parametrize("name", ["t%201.txt", "t 1.txt", "/mnt/data/t 1.txt"])
def test_a_name_is_the_same_however_a_client_quotes_it(pool: Pool, name: str) -> None:
    assert pool.upload(name, b"x", ENVELOPE).status_code == 200
    assert names(pool) == ["t 1.txt"]


@pytest.mark.parametrize("name", ["é.txt", "a%b", "a&b=c;d,e#f@g", "50% of (it) ^.txt", "content", "x" * 255])
def test_names_may_hold_what_they_hold(pool: Pool, name: str) -> None:
    assert pool.upload(name, b"x").json()["name"] == name
    assert pool.call("GET", f"files/{quote(name, safe='')}/content").content == b"x"
    assert pool.call("GET", f"files/content/{quote(name, safe='')}").content == b"x"
    assert pool.value("import os; os.listdir('/mnt/data')[0]") == name


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "/mnt/data/../x", "/mnt/database/x", "a/../b", "a//b", ".", "", "x" * 256, "%2e%2e%2fx"],
)
def test_a_name_that_leads_elsewhere_is_refused(pool: Pool, name: str) -> None:
    for version in (ENVELOPE, FLAT):
        body = form(name)
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        operation = "files" if version == FLAT else "files/upload"
        answer = pool.call("POST", operation, version, data=body, headers=headers)
        assert error_of(answer) == (400, "SessionRequestValidationFailed")
    assert error_of(pool.call("GET", "files/x/content", query={"path": "../y"}))[0] == 400
    assert error_of(pool.call("GET", "files", query={"path": "/etc"}))[0] == 400
    assert pool.call("GET", "session").status_code == 400  # none of it made a session


def form(name: str, content: bytes = b"x", part: str = "file") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{part}"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--b--\r\n"


def test_a_form_under_the_header_of_the_request_before_is_read(pool: Pool) -> None:
    """As semantic-kernel's client sends it."""
    headers = {"Content-Type": "application/json"}
    answer = pool.call("POST", "files/upload", ENVELOPE, data=form("/mnt/data/sk.txt"), headers=headers)
    assert answer.status_code == 200
    assert names(pool) == ["sk.txt"]


def test_a_form_may_come_in_pieces_of_unknown_number(pool: Pool) -> None:
    """As AutoGen's client sends it, which begins with another header of the part."""
    body = b"--b\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; "
    body += b'name="file"; filename="t%201.txt"\r\n\r\n' + b"line\n" * 5000 + b"\r\n--b--\r\n"
    pieces = (body[at : at + 7] for at in range(0, len(body), 7))
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert pool.call("POST", "files/upload", ENVELOPE, data=pieces, headers=headers).status_code == 200
    assert pool.call("GET", "files/content/t%201.txt").content == b"line\n" * 5000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        form("a.txt", part="other"),
        form("a.txt")[:-6],
        form("a.txt")[:60],
        form("a.txt")[:-4] + b"\r\n" + form("b.txt").removeprefix(b"--b\r\n"),
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n',
    ],
)
def test_what_is_no_form_with_one_file_leaves_nothing(pool: Pool, body: bytes) -> None:
    pool.upload("kept", b"1")
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    for operation in ("files/upload", "files"):
        answer = pool.call("POST", operation, data=body, headers=headers)
        assert error_of(answer) == (400, "SessionRequestValidationFailed")
    assert names(pool) == ["kept"]
    assert pool.value("import os; os.listdir('.')") == "['kept']"


def raw(pool: Pool, head: str, body: bytes) -> tuple[int, str]:
    """Send what comes to an end before it should; return status and code of the answer."""
    info = pool.host.info
    place = urlsplit(pool.endpoint).path
    with socket.create_connection((info.host, info.port or 0), timeout=30) as connection:
        start = f"POST {place}/files/upload?identifier={pool.identifier} HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{start}Authorization: Bearer {pool.token}\r\n{head}\r\n".encode() + body)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())["error"]["code"]


def test_a_form_that_is_too_long_is_refused_before_it_comes(pool: Pool) -> None:
    head = "Content-Type: multipart/form-data; boundary=b\r\n"
    told = raw(pool, f"{head}Content-Length: {130 * 1024**2}\r\n", b"")
    assert told == (413, "PayloadTooLarge")
    assert pool.call("GET", "session").status_code == 400


def test_a_file_beyond_a_quota_is_refused_and_leaves_nothing(pool: Pool) -> None:
    assert error_of(pool.upload("large", bytes(MAX_FILE_BYTES + 1))) == (413, "PayloadTooLarge")
    assert names(pool) == []
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    pieces = iter([form("large", bytes(MAX_FILE_BYTES + 1))])
    assert pool.call("POST", "files", data=pieces, headers=headers).status_code == 413
    assert names(pool) == []


def test_files_of_nobody_are_none(pool: Pool) -> None:
    assert names(pool) == names(pool, FLAT) == []
    for method in ("GET", "DELETE"):
        assert error_of(pool.call(method, "files/a.txt")) == (404, "FileNotFound")
    assert pool.call("GET", "session").status_code == 400


def test_files_of_others_are_none(pool: Pool) -> None:
    pool.upload("mine.txt", b"x")
    agent = mint(pool.host)
    theirs = pool.another(identifier=pool.identifier, token=agent.token)
    assert names(theirs) == []
    for operation in ("files/mine.txt", "files/content/mine.txt", "files/mine.txt/content"):
        assert error_of(theirs.call("GET", operation)) == (404, "FileNotFound")
    assert error_of(theirs.call("DELETE", "files/mine.txt")) == (404, "FileNotFound")
    assert names(pool) == ["mine.txt"]


def test_the_policy_of_a_token_holds_for_its_uploads(pool: Pool) -> None:
    agent = mint(pool.host, policy="trusted", max_file_bytes=10)
    theirs = pool.another(token=agent.token)
    assert theirs.upload("small", b"x" * 10).status_code == 200
    assert error_of(theirs.upload("large", b"x" * 11)) == (413, "PayloadTooLarge")
    trail = owner_of(pool.host).call("GET", "/sessions").json()["sessions"]
    assert theirs.identifier in {session["name"] for session in trail}
    assert theirs.call("DELETE", "session").status_code == 204


def test_a_file_whose_session_ends_while_it_comes_is_not_said_to_be_there(pool: Pool) -> None:
    pool.value("1")  # a session that is there already
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nbegun'
    place = urlsplit(pool.endpoint)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    connection.putrequest("POST", f"{place.path}/files?identifier={pool.identifier}&api-version={FLAT}")
    end = b"\r\n--b--\r\n"
    headers = {
        "Authorization": f"Bearer {pool.token}",
        "Content-Type": "multipart/form-data; boundary=b",
        "Content-Length": str(len(body) + len(end)),
    }
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    begun = "[name for name in os.listdir() if name.startswith('.jupyter-exec-upload-')]"
    pool.value(f"import os, time\nwhile not {begun}: time.sleep(0.01)")
    assert pool.call("DELETE", "session").status_code == 204
    connection.send(end)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (400, "SessionWithIdentifierNotFound")
    connection.close()
