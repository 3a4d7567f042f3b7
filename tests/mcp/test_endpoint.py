"""The endpoint on real hosts, by raw HTTP: tools, resources, progress, tasks, sessions, and what it refuses."""

from __future__ import annotations

import base64
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.mcp.raw_client import HANDSHAKE, MODERN, REVISIONS, TASKS, RawClient, events, last_message, text_of
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host

_PICTURE = "from IPython.display import Image, display\ndisplay(Image(data=bytes.fromhex('{}'), format='png'))"
_PNG = (
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364"
    "f80f00010501010027e366b80000000049454e44ae426082"
)


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture(scope="module")
def bearer(host: Host) -> Bearer:
    return mint(host)


@pytest.fixture
def own_bearer(host: Host) -> Bearer:
    """Return a token of the test's own, for sessions that count against its policy."""
    return mint(host)


@pytest.fixture(params=REVISIONS)
def client(request: pytest.FixtureRequest, bearer: Bearer) -> RawClient:
    return RawClient.of(bearer, request.param)


@pytest.fixture(scope="module")
def session(bearer: Bearer) -> str:
    return bearer.session()


def states(bearer: Bearer) -> dict[str, str]:
    """Return the states of a token's sessions by their ids."""
    return {each["id"]: each["state"] for each in bearer.call("GET", "/sessions").json()["sessions"]}


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():  # nothing announces it
        assert time.monotonic() < give_up_at, "it did not come to that"
        time.sleep(0.02)


# --- tools ---


def test_execute_code_returns_text_picture_links_and_the_record(client: RawClient, session: str) -> None:
    code = f"print('hello')\nopen('out.txt', 'w').write('x')\n{_PICTURE.format(_PNG)}\n6 * 7"
    result = client.tool("execute_code", code=code, session=session)
    kinds = [block["type"] for block in result["content"]]
    assert {"text", "image", "resource_link"} == set(kinds)
    (picture,) = (block for block in result["content"] if block["type"] == "image")
    assert (picture["mimeType"], base64.b64decode(picture["data"]).hex()) == ("image/png", _PNG)
    data = result["structuredContent"]
    assert (data["session"], data["is_new_session"], data["execution"]["state"]) == (session, False, "ok")
    assert "hello" in text_of(result) and "42" in data["text"]


def test_code_that_fails_is_a_result_with_its_error(client: RawClient, session: str) -> None:
    result = client.tool("execute_code", code="1 / 0", session=session)
    assert result["isError"] and "ZeroDivisionError" in text_of(result)
    assert result["structuredContent"]["execution"]["state"] == "error"


def test_trace_of_a_request_is_in_the_metadata_of_its_execution(
    client: RawClient, bearer: Bearer, session: str
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    params = {"name": "execute_code", "arguments": {"code": "1", "session": session}, "_meta": {"traceparent": trace}}
    execution = client.ask("tools/call", params)["result"]["structuredContent"]["execution"]["id"]
    assert bearer.call("GET", f"/executions/{execution}").json()["metadata"] == {"traceparent": trace}


def test_files_are_written_listed_and_read_by_tools_and_as_resources(client: RawClient, session: str) -> None:
    path = f"dir/naïve {client.revision}.txt"
    written = client.tool("write_file", path=path, text="héllo", session=session)["structuredContent"]
    assert (written["file"]["path"], written["file"]["size_bytes"], written["created"]) == (path, 6, True)
    listed = client.tool("list_files", path="dir", session=session)["structuredContent"]["files"]
    assert written["file"] in listed
    part = client.tool("read_file", path=path, session=session, offset=1, max_bytes=2)
    assert (part["structuredContent"]["text"], part["structuredContent"]["returned_bytes"]) == ("é", 2)
    (contents,) = client.ask("resources/read", {"uri": written["file"]["uri"]})["result"]["contents"]
    assert contents["text"] == "héllo"
    resources = client.ask("resources/list")["result"]["resources"]
    assert written["file"]["uri"] in [resource["uri"] for resource in resources]
    binary = base64.b64encode(b"\0\xff").decode()
    client.tool("write_file", path="bytes.bin", base64=binary, session=session)
    found = client.tool("read_file", path="bytes.bin", session=session)
    assert found["content"][0]["resource"]["blob"] == binary


@only_in_full
def test_long_output_is_downloaded_in_parts(client: RawClient, host: Host) -> None:
    limited = mint(host, max_output_bytes=2000)
    own = RawClient.of(limited, client.revision)
    ran = own.tool("execute_code", code="print('0123456789' * 1000)")["structuredContent"]["execution"]
    (spooled,) = ran["truncated"]["spooled"]
    found = own.tool("download_output", execution=ran["id"], name=spooled["name"], offset=9_995, max_bytes=100)
    assert found["structuredContent"]["text"] == "56789\n"
    uri = found["structuredContent"]["uri"]
    assert len(own.ask("resources/read", {"uri": uri})["result"]["contents"][0]["text"]) == 10_001


@only_in_full
def test_sessions_are_started_listed_interrupted_restarted_and_ended(client: RawClient) -> None:
    started = client.tool("start_session", name="mine")["structuredContent"]
    session = started["session"]
    assert (started["name"], started["state"]) == ("mine", "idle")
    listed = client.tool("list_sessions")["structuredContent"]["sessions"]
    assert session in [each["session"] for each in listed]
    client.tool("execute_code", code="kept = 1", session=session)
    assert client.tool("interrupt_session", session=session)["structuredContent"]["kernel_starts"] == 1
    assert client.tool("restart_session", session=session)["structuredContent"]["kernel_starts"] == 2
    assert client.tool("execute_code", code="kept", session=session)["isError"]
    assert client.tool("end_session", session=session)["structuredContent"] == {"session": session, "ended": True}
    assert text_of(client.tool("execute_code", code="1", session=session)).startswith("session_ended:")


def test_session_goes_back_to_a_checkpoint_and_has_branches(client: RawClient) -> None:
    session = client.tool("start_session", name="kept")["structuredContent"]["session"]
    client.tool("execute_code", code="x = 1", session=session)
    first = client.tool("checkpoint_session", session=session, name="first")["structuredContent"]
    assert (first["session"], first["name"], first["files"], first["lost"]) == (session, "first", True, [])
    client.tool("execute_code", code="x = 2", session=session)
    branches = client.tool("branch_session", session=session, checkpoint=first["checkpoint"], count=2)
    codes = [session, *(each["session"] for each in branches["structuredContent"]["sessions"])]
    assert [text_of(client.tool("execute_code", code="x", session=each))[0] for each in codes] == ["2", "1", "1"]
    restored = client.tool("restore_session", session=session, checkpoint=first["checkpoint"])["structuredContent"]
    assert (restored["session"], restored["kernel_starts"]) == (session, 2)
    assert text_of(client.tool("execute_code", code="x", session=session))[0] == "1"
    client.tool("checkpoint_session", session=session, replaces=first["checkpoint"])
    gone = client.tool("restore_session", session=session, checkpoint=first["checkpoint"])
    assert text_of(gone).startswith("checkpoint_not_found:")
    for each in codes:
        client.tool("end_session", session=each)


def test_mistakes_in_arguments_are_named_without_their_values(client: RawClient) -> None:
    result = client.tool("execute_code", code="secret", sessio="x", timeout_seconds=-1)
    assert result["isError"]
    assert text_of(result).startswith("invalid_request: ") and "sessio:" in text_of(result)
    assert "secret" not in text_of(result)


# --- progress and subscriptions ---


def test_progress_is_reported_each_second_with_the_last_lines(client: RawClient, session: str) -> None:
    code = "import time\nfor i in range(10):\n    print('line', i, flush=True); time.sleep(0.25)"
    arguments = {"code": code, "session": session}
    params = {"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": "p"}}
    began, times, reports = time.monotonic(), [], []
    with client.open("tools/call", params) as answer:
        for _, message in events(answer):
            if message.get("method") == "notifications/progress":
                times.append(time.monotonic() - began)
                reports.append(message["params"])
    assert {report["progressToken"] for report in reports} == {"p"}
    assert all(later["progress"] > earlier["progress"] for earlier, later in pairwise(reports))
    assert reports[-1]["message"].splitlines()[-1].startswith("line ")
    assert all(later - earlier < 1.5 for earlier, later in pairwise([0.0, *times])), times  # 1 s, on a busy machine


def test_changed_file_is_announced_to_subscribers_of_the_new_revision(bearer: Bearer, session: str) -> None:
    client = RawClient.of(bearer)
    uri, other = (f"exec://session/{session}/files/{name}.txt" for name in ("watched", "other"))
    strange = "exec://session/ses_nothing/files/x"
    wanted = {"resourceSubscriptions": [uri, strange], "toolsListChanged": True, "taskIds": ["exe_1"]}
    with client.open("subscriptions/listen", {"notifications": wanted}) as answer:
        stream = events(answer)
        _, acknowledged = next(stream)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": [uri]}
        client.tool("execute_code", code="open('other.txt', 'w').write('x')", session=session)
        client.tool("execute_code", code="open('watched.txt', 'w').write('x')", session=session)
        _, changed = next(stream)
        assert (changed["method"], changed["params"]["uri"]) == ("notifications/resources/updated", uri)
        assert other not in str(changed)


def test_changed_file_is_announced_to_subscribers_of_the_old_revision(bearer: Bearer, session: str) -> None:
    client = RawClient.of(bearer, HANDSHAKE)
    uri = f"exec://session/{session}/files/old.txt"
    assert client.ask("resources/subscribe", {"uri": uri})["result"] == {}
    with client.get() as answer:
        client.tool("write_file", path="old.txt", text="x", session=session)
        _, changed = next(events(answer))
        assert (changed["method"], changed["params"]) == ("notifications/resources/updated", {"uri": uri})
        assert client.ask("resources/unsubscribe", {"uri": uri})["result"] == {}
    foreign = client.ask("resources/subscribe", {"uri": "exec://session/ses_nothing/files/x"})
    assert foreign["error"]["data"]["code"] == "session_not_found"


# --- tasks ---


@only_in_full
@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_long_run_becomes_a_task_that_another_connection_reads(bearer: Bearer, session: str, end: str) -> None:
    client = RawClient.of(bearer, extensions={TASKS: {}})
    seconds = 7 if end == "done" else 60
    task = client.ask("tools/call", {"name": "execute_code", "arguments": {"code": sleep(seconds), "session": session}})
    created = task["result"]
    assert (created["resultType"], created["status"]) == ("task", "working")
    second = RawClient.of(bearer, extensions={TASKS: {}})
    asked = {"taskId": created["taskId"]}
    assert second.ask("tasks/get", asked)["result"]["status"] == "working"
    if end == "cancelled":
        assert second.ask("tasks/cancel", asked)["result"]["resultType"] == "complete"
    wait_for(lambda: second.ask("tasks/get", asked)["result"]["status"] != "working")
    found = second.ask("tasks/get", asked)["result"]
    assert found["status"] == ("completed" if end == "done" else "cancelled")
    if end == "done":
        assert found["result"]["structuredContent"]["text"] == "slept\n"
    assert second.ask("tasks/cancel", asked)["result"]["resultType"] == "complete"


def sleep(seconds: float) -> str:
    return f"import time\ntime.sleep({seconds})\nprint('slept')"


# --- sessions ---


def test_two_clients_with_one_token_never_share_a_default_session(own_bearer: Bearer) -> None:
    first, second = (RawClient.of(own_bearer, HANDSHAKE) for _ in range(2))
    one = first.tool("execute_code", code="mine = 1")["structuredContent"]
    assert one["is_new_session"]
    assert first.tool("execute_code", code="mine")["structuredContent"]["session"] == one["session"]
    other = second.tool("execute_code", code="mine")
    assert other["isError"] and other["structuredContent"]["session"] != one["session"]


@only_in_full
def test_first_calls_at_once_make_one_default_session(own_bearer: Bearer) -> None:
    client = RawClient.of(own_bearer, HANDSHAKE)
    found: list[str] = []

    def run() -> None:
        found.append(client.tool("execute_code", code="1")["structuredContent"]["session"])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1


@only_in_full
def test_open_get_keeps_sessions_whose_idle_time_is_shorter_than_that_between_comments(host: Host) -> None:
    bearer = mint(host, max_idle_seconds=2)
    client = RawClient.of(bearer, HANDSHAKE)
    with client.get() as answer:
        client.tool("execute_code", code="1")
        began = time.monotonic()
        for _ in answer.iter_content(None):
            if time.monotonic() - began > 6:
                break
        assert list(states(bearer).values()) == ["idle"]
    wait_for(lambda: not states(bearer))


def test_code_without_a_session_makes_one_and_says_its_id_in_the_new_revision(own_bearer: Bearer) -> None:
    client = RawClient.of(own_bearer)
    first, second = (client.tool("execute_code", code="1") for _ in range(2))
    ids = [result["structuredContent"]["session"] for result in (first, second)]
    assert ids[0] != ids[1] and all(result["structuredContent"]["is_new_session"] for result in (first, second))
    assert ids[0] in text_of(first)
    unnamed = client.tool("list_files")
    assert text_of(unnamed).startswith("invalid_request: name the 'session'")


def test_longest_idle_session_of_mcp_makes_room_and_one_of_exec_v1_never_does(host: Host) -> None:
    bearer = mint(host, max_sessions=3)
    kept = bearer.session()
    client = RawClient.of(bearer)
    first, second = (client.tool("execute_code", code="1")["structuredContent"]["session"] for _ in range(2))
    client.tool("execute_code", code="2", session=first)
    third = client.tool("execute_code", code="3")
    assert second in text_of(third) and "has ended to make room" in text_of(third)
    assert set(states(bearer)) == {kept, first, third["structuredContent"]["session"]}
    assert bearer.call("POST", "/sessions", json={}).json()["code"] == "policy_limit_reached"
    other = mint(bearer, name="other")  # its sessions count for the policy, and are not its neighbour's to end
    assert text_of(RawClient.of(other).tool("execute_code", code="1")).startswith("policy_limit_reached:")
    assert set(states(bearer)) == {kept, first, third["structuredContent"]["session"]}


# --- who may come in ---


def test_token_in_the_url_is_refused(host: Host) -> None:
    url = f"{host.info.url}exec/mcp?token={mint(host).token}"
    for answer in (requests.post(url, json={}, timeout=30), requests.get(url, timeout=30)):
        assert answer.status_code == 401
        assert "Authorization header" in answer.json()["error"]["message"]


def test_client_without_a_token_is_sent_to_the_metadata(host: Host) -> None:
    answer = requests.post(f"{host.info.url}exec/mcp", json={}, timeout=30)
    assert answer.status_code == 401 and answer.json()["id"] is None
    scheme, _, address = answer.headers["WWW-Authenticate"].partition(" resource_metadata=")
    metadata = requests.get(address.strip('"'), timeout=30).json()
    assert scheme == "Bearer"
    assert metadata["resource"] == f"{host.info.url}exec/mcp"
    assert metadata["bearer_methods_supported"] == ["header"] and "authorization_servers" not in metadata
    page = requests.get(metadata["resource_documentation"], timeout=30)
    assert "jupyter exec token create" in page.text


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}], ids=str)
def test_foreign_host_and_origin_are_refused(host: Host, bearer: Bearer, headers: dict[str, str]) -> None:
    client = RawClient.of(bearer)
    assert client.send(client.message("tools/list"), headers).status_code == 403
    metadata = f"{host.info.url}exec/mcp/.well-known/oauth-protected-resource"
    # Jupyter Server's own answer to a foreign origin is 404.
    assert requests.get(metadata, headers=headers, timeout=30).status_code in (403, 404)


def test_login_cookie_needs_the_xsrf_token(hosts: Any) -> None:
    server: Host = hosts["server"]
    browser = requests.Session()
    browser.get(f"{server.info.url}api/status?token={server.info.token}", timeout=30)
    client = RawClient(f"{server.info.url}exec/mcp", "")
    message = client.message("tools/list")
    headers = {name: value for name, value in client.headers_for(message).items() if name != "Authorization"}
    refused = browser.post(client.url, json=message, headers=headers, timeout=30)
    assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (403, "xsrf_check_failed")
    browser.get(f"{server.info.url}exec/v1/", timeout=30)
    xsrf = {"X-XSRFToken": str(browser.cookies["_xsrf"])}
    assert browser.post(client.url, json=message, headers=headers | xsrf, timeout=30).status_code == 200


def test_policy_limits_the_open_streams(host: Host) -> None:
    bearer = mint(host, max_streams=1)
    client = RawClient.of(bearer, HANDSHAKE)
    with client.get() as answer:
        assert answer.status_code == 200
        refused = client.post("tools/call", {"name": "list_sessions", "arguments": {}})
        assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (429, "policy_limit_reached")
        assert client.post("tools/list").status_code == 200
    wait_for(lambda: client.post("tools/call", {"name": "list_sessions"}).status_code == 200)


@pytest.mark.parametrize("revision", REVISIONS)
def test_revoked_token_ends_open_streams_and_code(host: Host, revision: str) -> None:
    bearer = mint(host)
    client = RawClient.of(bearer, revision)
    session = bearer.session()
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(client.tool("execute_code", code=sleep(60), session=session))
        except (requests.RequestException, AssertionError) as error:
            answers.append(error)

    waiting = threading.Thread(target=run)
    waiting.start()
    wait_for(lambda: states(bearer)[session] == "busy")
    began = time.monotonic()
    with client.get() if revision == HANDSHAKE else listening(client, session) as stream:
        assert owner_of(host).call("DELETE", f"/tokens/{bearer.id}").status_code == 204
        with suppress(requests.RequestException):  # it is closed, before or after its last chunk
            list(stream.iter_content(None))
    waiting.join()
    assert time.monotonic() - began < 10
    found = owner_of(host).call("GET", f"/sessions/{session}/executions").json()["executions"]
    assert [each["state"] for each in found] == ["token_revoked"]


def listening(client: RawClient, session: str) -> requests.Response:
    uris = [f"exec://session/{session}/files/x"]
    return client.open("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})


@only_in_full
def test_without_the_sdk_the_endpoint_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp_types'] = None\n")
    with running_host("server", tmp_path, UNPROTECTED, env={"PYTHONPATH": str(tmp_path)}) as host:
        client = RawClient(f"{host.info.url}exec/mcp", str(host.info.token))
        answer = client.post("tools/list")
        assert answer.status_code == 404
        assert "pip install 'jupyter-exec-ext[mcp]'" in answer.json()["error"]["message"]
        assert "mcp" not in owner_of(host).call("GET", "/").json()["features"]


@only_in_full
def test_metadata_names_the_hub_at_a_host_of_its_own(tmp_path: Path) -> None:
    """With subdomains for users; `tests/server/test_hub.py` has a Hub at the same host."""
    env = {"JUPYTERHUB_BASE_URL": "/hub-at/", "JUPYTERHUB_HOST": "https://hub.example"}
    with running_host("server", tmp_path, env=env) as host:
        address = f"{host.info.url}exec/mcp/.well-known/oauth-protected-resource"
        metadata = requests.get(address, timeout=30).json()
        assert metadata["authorization_servers"] == ["https://hub.example/hub-at/hub/"]


def test_features_say_that_the_endpoint_is_there(host: Host) -> None:
    assert "mcp" in owner_of(host).call("GET", "/").json()["features"]


def test_modern_and_old_results_are_single_messages(client: RawClient, session: str) -> None:
    answer = client.post("tools/call", {"name": "execute_code", "arguments": {"code": "1", "session": session}})
    assert answer.headers["Content-Type"].startswith("application/json")
    assert "result" in last_message(answer)
    assert (answer.headers.get("Mcp-Session-Id", "") == "") is (client.revision == MODERN)
