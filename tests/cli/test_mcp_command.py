"""``jupyter exec mcp``: options reach the adapter, a missing extra is named, configurations hold no token.

`tests/adapters/mcp/test_mcp_command.py` starts it with a real client.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_exec_ext import JupyterConnectionInfo
from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.cli.mcp_client_config import CLIENTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

URL = "http://127.0.0.1:8888/"
TOKEN = "jex_abc_secret"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a token's file, and no profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("JUPYTER_TOKEN", raising=False)
    (tmp_path / "agent.token").write_text(f"{TOKEN}\n")
    return tmp_path


def entry_of(client: str, text: str) -> dict[str, Any]:
    """Return what a client's configuration says of the server."""
    document = tomllib.loads(text) if client == "codex" else json.loads(text)
    servers = document[{"codex": "mcp_servers", "vscode": "servers"}.get(client, "mcpServers")]
    found: dict[str, Any] = servers["jupyter"]
    return found


def printed(capsys: pytest.CaptureFixture[str], client: str, *words: str) -> dict[str, Any]:
    assert main(["mcp", "--print-config", client, *words]) == 0
    return entry_of(client, capsys.readouterr().out)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # marks a module that is not installed
    monkeypatch.delitem(sys.modules, "jupyter_exec_ext.adapters.mcp", raising=False)
    assert main(["mcp", "--server", "http://localhost:1/"]) == 2
    assert "pip install 'jupyter-exec-ext[mcp]'" in capsys.readouterr().err


def test_options_are_passed_to_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[JupyterConnectionInfo, dict[str, object]]] = []
    adapter = ModuleType("jupyter_exec_ext.adapters.mcp")
    monkeypatch.setattr(
        adapter, "serve_at_standard_streams", lambda server, **options: given.append((server, options)), raising=False
    )
    monkeypatch.setitem(sys.modules, adapter.__name__, adapter)
    words = ["mcp", "--server", URL, "--token-file", "agent.token", "--kernel", "python3", "--timeout", "2m"]
    assert main(words) == 0
    ((server, options),) = given
    assert (server.url, server.token) == (URL, TOKEN)
    assert options == {"kernel_name": "python3", "session_id": None, "timeout_seconds": 120.0}


@pytest.mark.parametrize("client", CLIENTS)
def test_configuration_names_program_and_token_file_by_absolute_paths(
    client: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = printed(capsys, client, "--server", URL, "--token-file", "agent.token", "--timeout", "2m")
    assert os.path.isabs(entry["command"]) and os.access(entry["command"], os.X_OK)
    token_file = str(home / "agent.token")
    assert entry["args"] == ["mcp", "--server", URL, "--token-file", token_file, "--timeout", "120"]
    assert TOKEN not in str(entry)
    assert entry.get("type", "stdio") == "stdio"
    assert entry.get("tool_timeout_sec") == (150 if client == "codex" else None)


@pytest.mark.parametrize("client", CLIENTS)
def test_configuration_names_profile_and_where_it_is_kept(
    client: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "add", "lab", "--server", URL, "--token-file", "agent.token"]) == 0
    capsys.readouterr()
    entry = printed(capsys, client, "--server", "lab", "--kernel", "python3")
    assert entry["args"] == ["mcp", "--server", "lab", "--kernel", "python3"]
    assert entry["env"] == {"JUPYTER_CONFIG_DIR": str(home / "config")}


def test_configuration_of_auto_needs_no_token_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "cursor", "--server", "auto")["args"] == ["mcp", "--server", "auto"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--server", URL], "add --token-file FILE, or name a profile"),
        (["--server", f"{URL}?token={TOKEN}"], "the URL holds a token"),
        (["--server", "lba", "--token-file", "agent.token"], "there is no profile 'lba'"),
        (["--server", "ftp://x/", "--token-file", "agent.token"], "ftp://x/"),
        (["--server", URL, "--token-file", "none"], "there is no file "),
        (["--server", URL, "--token-file", "agent.token", "--ca-bundle", "none"], "--ca-bundle: there is no file"),
    ],
)
def test_configuration_that_would_not_work_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--print-config", "claude-code", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == "" and TOKEN not in shown.err


def test_profile_without_token_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "add", "open", "--server", URL]) == 0
    assert main(["mcp", "--print-config", "codex", "--server", "open"]) == 2
    assert "the configuration must say where the token of open is" in capsys.readouterr().err


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    assert main(["mcp", "--print-config", "codex", "--server", "auto"]) == 2
    assert "jupyter-exec is in none of" in capsys.readouterr().err
