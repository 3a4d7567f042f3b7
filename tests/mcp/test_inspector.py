"""MCP's Inspector at the command line: what it lists and reads, and a call that becomes a task."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.node_clients import CLIENTS, NODE, install_clients
from tests.mcp.places import Place
from tests.support.full import only_in_full

pytestmark = [only_in_full, pytest.mark.timeout(240)]

Inspect = Callable[..., dict[str, Any]]
_LAUNCHER = CLIENTS / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
_SECONDS = 60.0
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=["modern", "legacy"])
def inspect(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Inspect:
    """Runs the program with one method, in each era of the protocol; returns the result."""
    install_clients()
    command = [NODE, str(_LAUNCHER / "index.js"), "--cli", "--server-url", place.url, "--transport", "http"]
    command += ["--header", f"Authorization: Bearer {place.token}", "--protocol-era", request.param]

    def run(method: str, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [*command, "--format", "json", "--quiet", "--method", method, *arguments],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout)["result"])

    return run


def execute(inspect: Inspect, code: str) -> dict[str, Any]:
    """Run code in a new session, which ends with it; return the result."""
    arguments = json.dumps({"code": code})
    result = inspect("tools/call", "--tool-name", "execute_code", "--tool-args-json", arguments)
    assert not result.get("isError"), result
    return result


def test_schemas_of_tools_are_portable(inspect: Inspect) -> None:
    tools = inspect("tools/list", "--strict")["tools"]
    assert "execute_code" in {tool["name"] for tool in tools}


def test_picture_and_file_arrive(inspect: Inspect) -> None:
    code = (
        "import base64\nfrom IPython.display import Image\nopen('a.txt', 'w').write('written')\n"
        f"Image(base64.b64decode('{_PIXEL}'))"
    )
    content = execute(inspect, code)["content"]
    (picture,) = [block for block in content if block["type"] == "image"]
    assert base64.b64decode(picture["data"]) == base64.b64decode(_PIXEL)
    (link,) = [block for block in content if block["type"] == "resource_link"]
    assert inspect("resources/read", "--uri", link["uri"])["contents"][0]["text"] == "written"


def test_call_that_becomes_a_task_gives_its_result(inspect: Inspect) -> None:
    result = execute(inspect, "import time\ntime.sleep(7)\nprint('ended')")
    assert "ended" in result["structuredContent"]["text"]
