"""langchain-azure-dynamic-sessions' tools."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from langchain_azure_dynamic_sessions import SessionsPythonREPLTool
from langchain_azure_dynamic_sessions.tools.sessions import SessionsBashTool

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def tool(endpoint: str) -> Iterator[SessionsPythonREPLTool]:
    tool = SessionsPythonREPLTool(pool_management_endpoint=endpoint)
    yield tool
    tool._delete_session_sync(tool.session_id)  # as its `close` does, which does not wait


def invoke(tool: SessionsPythonREPLTool, code: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tool.invoke(code))
    return answer


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("1 / 4", 0.25),
        ("2 > 1", True),
        ("'a' * 3", "aaa"),
        ("'42'", "42"),
        ("[1, {'a': None}]", "[1, {'a': None}]"),
        ("None", ""),
        ("x = 1", ""),
        ("```python\n6 * 7\n```", 42),
    ],
)
def test_a_value_has_the_type_that_azure_gives_it(tool: SessionsPythonREPLTool, code: str, value: object) -> None:
    result = invoke(tool, code)["result"]
    assert result == value
    assert type(result) is type(value)


def test_streams_errors_and_state(tool: SessionsPythonREPLTool) -> None:
    wrote = invoke(tool, "import sys; kept = 5; print('out'); print('err', file=sys.stderr)")
    assert wrote == {"result": "", "stdout": "out\n", "stderr": "err\n"}
    assert "ZeroDivisionError: division by zero" in invoke(tool, "1 / 0")["stderr"]
    assert invoke(tool, "kept")["result"] == 5


def test_a_picture_is_an_artifact_and_not_for_the_model(tool: SessionsPythonREPLTool) -> None:
    code = f"from IPython.display import Image\nImage({PICTURE!r})"
    content, artifact = tool._run(code)
    assert json.loads(content)["result"] == {"type": "image", "format": "png"}
    assert base64.b64decode(artifact["result"]["base64_data"]) == PICTURE


@pytest.mark.parametrize("name", ["data.txt", "with a space & more.txt", "größe.txt", "directory/inside.txt"])
def test_files_go_there_and_back(tool: SessionsPythonREPLTool, tmp_path: Path, name: str) -> None:
    content = bytes(range(256)) * 5
    uploaded = tool.upload_file(data=io.BytesIO(content), remote_file_path=name)
    assert (uploaded.filename, uploaded.size_in_bytes) == (name, len(content))
    assert uploaded.full_path == f"/mnt/data/{name}"
    assert invoke(tool, f"len(open({name!r}, 'rb').read())")["result"] == len(content)
    tool.download_file(remote_file_path=name, local_file_path=str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


def test_files_that_code_writes_are_listed_and_those_of_others_are_not(endpoint: str) -> None:
    one, other = (SessionsPythonREPLTool(pool_management_endpoint=endpoint) for _ in range(2))
    invoke(one, "_ = open('written.txt', 'w').write('four')")
    assert [(file.filename, file.size_in_bytes) for file in one.list_files()] == [("written.txt", 4)]
    assert other.list_files() == []
    with pytest.raises(requests.HTTPError, match="404"):
        other.download_file(remote_file_path="written.txt")


def test_identifiers_arrive_whole(endpoint: str) -> None:
    """This client quotes them, as it should."""
    for identifier in ("user#1", "user#2", "user&identifier=user#1"):
        tool = SessionsPythonREPLTool(pool_management_endpoint=endpoint, session_id=identifier)
        assert "NameError" in invoke(tool, "kept")["stderr"], identifier
        invoke(tool, f"kept = {identifier!r}")
        assert invoke(tool, "kept")["result"] == identifier


@pytest.mark.parametrize("identifier", ["abc", "x" * 129, "with a space", "größe", "back\\slash"])
def test_identifiers_that_azure_forbids_are_refused(endpoint: str, identifier: str) -> None:
    tool = SessionsPythonREPLTool(pool_management_endpoint=endpoint, session_id=identifier)
    with pytest.raises(requests.HTTPError, match="400"):
        tool.invoke("1")


def test_two_users_never_share_a_session(endpoint: str, other_token: str) -> None:
    mine = SessionsPythonREPLTool(pool_management_endpoint=endpoint, session_id="same-identifier")
    theirs = SessionsPythonREPLTool(
        pool_management_endpoint=endpoint, session_id="same-identifier", access_token_provider=lambda: other_token
    )
    invoke(mine, "secret = 5")
    assert "NameError" in invoke(theirs, "secret")["stderr"]
    assert invoke(mine, "secret")["result"] == 5


def test_leaving_the_tool_ends_its_session(endpoint: str) -> None:
    others = set(threading.enumerate())
    with SessionsPythonREPLTool(pool_management_endpoint=endpoint) as tool:
        identifier = tool.session_id
        invoke(tool, "kept = open('kept.txt', 'w')")
    for thread in set(threading.enumerate()) - others:  # it does not wait for what it has sent
        thread.join()
    again = SessionsPythonREPLTool(pool_management_endpoint=endpoint, session_id=identifier)
    with pytest.raises(requests.HTTPError, match="400"):  # as Azure says of a session that is not there
        again._delete_session_sync(identifier)
    assert "NameError" in invoke(again, "kept")["stderr"]
    assert again.list_files() == []


def test_the_shell_tool_is_told_that_this_is_no_pool_of_shells(endpoint: str) -> None:
    with pytest.raises(requests.HTTPError, match="400"):
        SessionsBashTool(pool_management_endpoint=endpoint).invoke("echo hello")


def test_a_token_that_is_none_of_ours_is_refused(endpoint: str) -> None:
    tool = SessionsPythonREPLTool(pool_management_endpoint=endpoint, access_token_provider=lambda: "none-of-ours")
    with pytest.raises(requests.HTTPError, match="401"):
        tool.invoke("1")
