"""Secrets by the API of both hosts, both clients and the command; no answer and no log has a value."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from jupyter_exec_ext.errors import Conflict, InvalidRequest, OwnerOnly, SecretNotFound
from jupyter_exec_ext.server.routes import ROUTES
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.hosts import Host, clean_environment, running_host

VALUE = "value-that-no-answer-has"
HOSTS, HEADER = ["a.test"], "Authorization: Bearer {}"
FULL = {"value": VALUE, "hosts": HOSTS, "header": HEADER}


@pytest.fixture(scope="module", params=["server", "gateway"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(request.param, tmp_path_factory.mktemp("secrets")) as host:
        yield host


@pytest.fixture
def boss(place: Host) -> Iterator[Bearer]:
    """The owner, on a server that has no secrets before and after."""
    bearer = owner_of(place)
    yield bearer
    for secret in bearer.call("GET", "/secrets").json()["secrets"]:
        assert bearer.call("DELETE", f"/secrets/{secret['name']}").status_code == 204


def test_owner_sets_reads_lists_and_deletes_a_secret(boss: Bearer) -> None:
    made = boss.call("PUT", "/secrets/API_TOKEN", json=FULL)
    assert made.status_code == 200, made.text
    record = made.json()
    assert (record["name"], record["hosts"], record["header"]) == ("API_TOKEN", HOSTS, HEADER)
    assert boss.call("GET", "/secrets/API_TOKEN").json() == record
    assert boss.call("GET", "/secrets").json() == {"secrets": [record]}
    assert boss.call("POST", "/secret-key/rotate").json() == {"secrets": 1}
    assert boss.call("DELETE", "/secrets/API_TOKEN").status_code == 204
    for method in ("GET", "DELETE"):
        missing = boss.call(method, "/secrets/API_TOKEN")
        assert (missing.status_code, missing.json()["code"]) == (404, "secret_not_found")


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], {"value": VALUE}, {**FULL, "value": 1}, {**FULL, "value": ""}, {**FULL, "value": "x" * 4097}),
        *({**FULL, "hosts": "a.test"}, {**FULL, "hosts": [1]}, {**FULL, "hosts": ["a b"]}, {**FULL, "more": 1}),
        *({**FULL, "header": "x" * 257}, {**FULL, "header": "Cookie"}, {**FULL, "value": "half \ud800 pair"}),
    ],
)
def test_wrong_request_is_refused_and_sets_nothing(boss: Bearer, body: Any) -> None:
    refused = boss.call("PUT", "/secrets/API_TOKEN", json=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert VALUE not in refused.text
    assert boss.call("GET", "/secrets").json() == {"secrets": []}


def test_wrong_name_is_refused(boss: Bearer) -> None:
    for name in ("lower", "PATH", "1A", "A-B", "A" * 64 + "B"):
        refused = boss.call("PUT", f"/secrets/{name}", json=FULL)
        assert refused.status_code in (400, 404), name


def test_scoped_token_reads_and_sets_nothing(place: Host, boss: Bearer) -> None:
    boss.call("PUT", "/secrets/API_TOKEN", json=FULL)
    agent = mint(place)
    cells = [("GET", "/secrets"), ("GET", "/secrets/API_TOKEN"), ("DELETE", "/secrets/API_TOKEN")]
    for method, path in [*cells, ("PUT", "/secrets/API_TOKEN"), ("POST", "/secret-key/rotate")]:
        refused = agent.call(method, path, json=FULL if method == "PUT" else None)
        assert (refused.status_code, refused.json()["code"]) == (403, "owner_only"), (method, path)
    assert [each["name"] for each in boss.call("GET", "/secrets").json()["secrets"]] == ["API_TOKEN"]


async def test_both_clients_manage_secrets(place: Host, boss: Bearer) -> None:
    with ExecClient(place.info) as client:
        made = client.secrets.set("API_TOKEN", VALUE, hosts=HOSTS, header=HEADER)
        assert (made.name, list(made.hosts), made.header) == ("API_TOKEN", HOSTS, HEADER)
        assert client.secrets.set("API_TOKEN", VALUE + "2").created_at == made.created_at
        assert [each.name for each in client.secrets.list()] == ["API_TOKEN"]
        assert client.secrets.rotate_key() == 1
        with pytest.raises(InvalidRequest, match="needs 'hosts'"):
            client.secrets.set("OTHER", VALUE)
    async with AsyncExecClient(place.info) as asynchronous:
        await asynchronous.secrets.set("OTHER", VALUE, hosts=HOSTS, header="X-Key: {}")
        assert [each.name for each in await asynchronous.secrets.list()] == ["API_TOKEN", "OTHER"]
        assert await asynchronous.secrets.rotate_key() == 2
        await asynchronous.secrets.delete("OTHER")
        with pytest.raises(SecretNotFound):
            await asynchronous.secrets.delete("OTHER")
    with ExecClient(place.info.url, token=mint(place).token) as agent, pytest.raises(OwnerOnly):
        agent.secrets.list()


def _run(place: Host, home: Path, *arguments: str, value: str | None = None) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "jupyter-exec")
    command = [program, "secret", *arguments, "--server", place.info.url]
    env = clean_environment(home, JUPYTER_TOKEN=str(place.info.token))
    return subprocess.run(command, env=env, input=value or "", capture_output=True, text=True, check=False)


def test_command_reads_the_value_from_standard_input(place: Host, boss: Bearer, tmp_path: Path) -> None:
    done = _run(place, tmp_path, "set", "API_TOKEN", "--host", "a.test", "--header", HEADER, value=VALUE + "\n")
    assert (done.returncode, done.stdout) == (0, f"API_TOKEN is set for a.test, in the header '{HEADER}'\n"), (
        done.stderr
    )
    assert _run(place, tmp_path, "set", "API_TOKEN", value=VALUE + "2").returncode == 0
    listed = _run(place, tmp_path, "list")
    assert "API_TOKEN  a.test  Authorization: Bearer {}" in listed.stdout
    listed_json = json.loads(_run(place, tmp_path, "list", "--json").stdout)
    assert [each["name"] for each in listed_json["secrets"]] == ["API_TOKEN"]
    assert _run(place, tmp_path, "rotate-key").stdout == "Secrets encrypted with a new key: 1\n"
    assert _run(place, tmp_path, "delete", "API_TOKEN").returncode == 0
    empty = _run(place, tmp_path, "set", "API_TOKEN", "--host", "a.test", "--header", HEADER)
    assert empty.returncode == 2 and "the value of API_TOKEN is empty" in empty.stderr
    missing = _run(place, tmp_path, "delete", "API_TOKEN")
    assert missing.returncode != 0 and "there is no secret API_TOKEN" in missing.stderr


def test_command_prompts_without_echo(place: Host, boss: Bearer, tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "jupyter-exec")
    arguments = ["set", "API_TOKEN", "--host", "a.test", "--header", HEADER, "--server", place.info.url]
    env = clean_environment(tmp_path, JUPYTER_TOKEN=str(place.info.token))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [program, "secret", *arguments], env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    while b"Value of API_TOKEN: " not in shown:
        shown += os.read(ours, 1024)
    os.write(ours, VALUE.encode() + b"\n")
    while b"is set for" not in shown:
        shown += os.read(ours, 1024)
    assert process.wait(30) == 0
    os.close(ours)
    assert VALUE.encode() not in shown
    assert [each["name"] for each in boss.call("GET", "/secrets").json()["secrets"]] == ["API_TOKEN"]


def test_key_file_that_others_can_read_is_a_conflict_with_the_remedy(place: Host, boss: Bearer) -> None:
    boss.call("PUT", "/secrets/API_TOKEN", json=FULL)
    (key,) = place.home.rglob("secrets.key")
    key.chmod(0o644)
    try:
        with ExecClient(place.info) as client, pytest.raises(Conflict, match="chmod 600"):
            client.secrets.set("API_TOKEN", VALUE)
    finally:
        key.chmod(0o600)


def test_neither_answers_nor_log_nor_files_of_the_server_have_a_value(place: Host, boss: Bearer) -> None:
    broken = {"data": json.dumps(FULL)[:-1], "headers": {"Content-Type": "application/json"}}
    answers = [
        boss.call("PUT", "/secrets/API_TOKEN", **options)
        for options in ({"json": FULL}, {"json": {**FULL, "more": VALUE}}, {"json": {**FULL, "header": "x"}}, broken)
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 400]
    paths = [route.path for route in ROUTES if "GET" in route.methods and "{" not in route.path]
    paths = [path for path in paths if path not in ("/events", "/executions")]  # the feed has no end
    answers += [boss.call("GET", path) for path in [*paths, "/executions?query=value", "/secrets/API_TOKEN"]]
    assert {answer.status_code for answer in answers[4:]} == {200}
    assert [answer.url for answer in answers if VALUE in answer.text] == []
    assert VALUE not in place.log_text()
    files = [path for path in place.home.rglob("*") if path.is_file()]
    assert any(path.name == "secrets.key" for path in files)
    assert [path for path in files if VALUE.encode() in path.read_bytes()] == []
