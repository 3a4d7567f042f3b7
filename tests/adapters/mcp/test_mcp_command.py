"""``jupyter exec mcp`` with the protocol's own client, started as each client's configuration says."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from jupyter_exec_ext import ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters import mcp
from jupyter_exec_ext.cli.mcp_client_config import CLIENTS
from tests.support.full import IS_FULL, only_in_full

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PROGRAM = Path(sysconfig.get_path("scripts")) / "jupyter-exec"
_SHADOW = "import os, pathlib; pathlib.Path(os.environ.get('HOME', '.'), 'imported').touch()\n"


@pytest.fixture
def token_file(local_server: LocalJupyterServer, tmp_path: Path) -> Path:
    file = tmp_path / "agent.token"
    file.touch(0o600)
    file.write_text(f"{local_server.connection_info.token}\n")
    return file


def configured(client: str, server: str, token_file: Path) -> StdioServerParameters:
    """Return what a client would start."""
    words = ["mcp", "--server", server, "--token-file", token_file.name, "--print-config", client, "--stdio"]
    done = subprocess.run([_PROGRAM, *words], cwd=token_file.parent, capture_output=True, text=True, check=True)
    document: dict[str, Any] = tomllib.loads(done.stdout) if client == "codex" else json.loads(done.stdout)
    ((_, servers),) = document.items()
    entry = servers["jupyter"]
    return StdioServerParameters(command=entry["command"], args=entry["args"], env=entry.get("env"))


async def result_of(program: StdioServerParameters, code: str) -> str:
    """Return the text of a call, after the client has found the tool."""
    async with Client(program) as agent:
        assert "execute_code" in [tool.name for tool in (await agent.list_tools()).tools]
        result: Any = await agent.call_tool("execute_code", {"code": code})
    (block,) = result.content
    return str(block.text)


@pytest.mark.parametrize("mcp_client", CLIENTS if IS_FULL else ["codex"])
async def test_printed_configuration_runs_code_and_leaves_no_session(
    mcp_client: str, local_server: LocalJupyterServer, token_file: Path, client: ExecClient
) -> None:
    program = configured(mcp_client, local_server.connection_info.url, token_file)
    assert str(local_server.connection_info.token) not in str(program)
    assert await result_of(program, "print(6 * 7)") == "42\n"
    assert client.list_sessions() == []


@pytest.mark.parametrize(("url", "expected"), [("http://h/?token=url", "url"), ("http://h/", "environment")])
def test_token_of_the_url_comes_before_that_of_the_environment(
    url: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str | None] = []
    monkeypatch.setattr(mcp, "serve_at_standard_streams", lambda server, **options: tokens.append(server.token))
    monkeypatch.setenv("JUPYTER_TOKEN", "environment")
    mcp.main(["--server", url])
    assert tokens == [expected]


def test_server_that_is_no_url_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        mcp.main(["--server", "ftp://h/"])
    assert "'ftp://h' is not the URL of a server" in capsys.readouterr().err


async def test_refused_token_is_reported_with_the_remedy(local_server: LocalJupyterServer, token_file: Path) -> None:
    token_file.write_text("wrong-and-secret\n")
    text = await result_of(configured("cursor", local_server.connection_info.url, token_file), "1")
    assert "token" in text and "wrong-and-secret" not in text


async def test_unreachable_server_is_reported_by_the_call(token_file: Path) -> None:
    text = await result_of(configured("cursor", "http://127.0.0.1:9/", token_file), "1")
    assert "http://127.0.0.1:9/" in text


@only_in_full
async def test_modules_of_the_project_are_not_imported(
    local_server: LocalJupyterServer, token_file: Path, tmp_path: Path
) -> None:
    """A client starts the program in its project, where an agent can write files."""
    project = tmp_path / "project"
    (project / "jupyter_exec_ext").mkdir(parents=True)
    for name in ("jupyter_exec_ext/__init__.py", "json.py", "mcp.py", "contextlib.py"):
        (project / name).write_text(_SHADOW)
    program = configured("claude-code", local_server.connection_info.url, token_file)
    program.cwd, program.env = str(project), {"HOME": str(tmp_path)}
    assert await result_of(program, "print(1)") == "1\n"
    assert not (tmp_path / "imported").exists()
