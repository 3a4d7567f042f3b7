"""``jupyter exec mcp``: options reach the adapter, a missing extra is named, configurations hold no token.

`tests/adapters/mcp/test_mcp_command.py` starts it with a real client.
"""

from __future__ import annotations

import json
import os
import subprocess
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
    for name in ("JUPYTER_TOKEN", "JUPYTER_EXEC_SERVER", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "agent.token").write_text(f"{TOKEN}\n")
    return tmp_path


def entry_of(client: str, text: str) -> dict[str, Any]:
    """Return what a client's configuration says of the server."""
    document = tomllib.loads(text) if client == "codex" else json.loads(text)
    servers = document[{"codex": "mcp_servers", "vscode": "servers"}.get(client, "mcpServers")]
    found: dict[str, Any] = servers["jupyter"]
    return found


def printed(capsys: pytest.CaptureFixture[str], client: str, *words: str) -> dict[str, Any]:
    """Return the entry that starts the program."""
    assert main(["mcp", "--print-config", client, "--stdio", *words]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return entry_of(client, shown.out)


def printed_url(capsys: pytest.CaptureFixture[str], client: str, *words: str) -> tuple[dict[str, Any], str]:
    """Return the entry for the endpoint, and the note on the token."""
    assert main(["mcp", "--print-config", client, *words]) == 0
    shown = capsys.readouterr()
    assert TOKEN not in shown.out + shown.err
    return entry_of(client, shown.out), shown.err


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ["mcp", *(name for name in sys.modules if name.startswith("mcp."))]:
        monkeypatch.setitem(sys.modules, name, None)  # marks a module that is not installed
    monkeypatch.delitem(sys.modules, "jupyter_exec_ext.adapters.mcp", raising=False)
    assert main(["mcp", "--server", "http://localhost:1/"]) == 2
    assert "pip install 'jupyter-exec-ext[mcp]'" in capsys.readouterr().err


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[JupyterConnectionInfo, dict[str, object]]]:
    """The server and the options that the adapter was called with."""
    calls: list[tuple[JupyterConnectionInfo, dict[str, object]]] = []
    adapter = ModuleType("jupyter_exec_ext.adapters.mcp")
    monkeypatch.setattr(
        adapter, "serve_at_standard_streams", lambda server, **options: calls.append((server, options)), raising=False
    )
    monkeypatch.setitem(sys.modules, adapter.__name__, adapter)
    return calls


@pytest.mark.parametrize("words", [[], ["--server", "auto"]])
def test_server_of_the_environment_is_served_and_printed(
    words: list[str],
    given: list[tuple[JupyterConnectionInfo, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JUPYTER_EXEC_SERVER", "https://lab.example.org/")
    words = [*words, "--token-file", "agent.token"]
    assert main(["mcp", *words]) == 0
    assert [server.url for server, _ in given] == ["https://lab.example.org/"]
    capsys.readouterr()
    assert printed(capsys, "cursor", *words)["args"][:3] == ["mcp", "--server", "https://lab.example.org/"]


def test_server_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--server", "none"]) == 2
    assert "name one: URL, profile or auto" in capsys.readouterr().err


def test_token_of_the_url_comes_before_that_of_the_environment(
    given: list[tuple[JupyterConnectionInfo, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "environment")
    for url in (f"{URL}?token=url", URL):
        assert main(["mcp", "--server", url]) == 0
    assert [server.token for server, _ in given] == ["url", "environment"]


def test_options_are_passed_to_the_adapter(given: list[tuple[JupyterConnectionInfo, dict[str, object]]]) -> None:
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
    assert entry["args"] == ["mcp", "--server", "lab", "--kernel=python3"]
    assert entry["env"] == {"JUPYTER_CONFIG_DIR": str(home / "config")}


def test_configuration_of_auto_needs_no_token_file(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--server", "auto"]):
        entry = printed(capsys, "cursor", *words)
        assert (entry["args"], entry.get("env")) == (["mcp", "--server", "auto"], None)


@pytest.mark.parametrize(
    ("variable", "expected"), [("JUPYTER_RUNTIME_DIR", "moved"), ("JUPYTER_DATA_DIR", "moved/runtime")]
)
def test_configuration_of_auto_names_a_runtime_directory_that_was_moved(
    variable: str, expected: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "moved")
    assert printed(capsys, "codex", "--server", "auto")["env"] == {"JUPYTER_RUNTIME_DIR": str(home / expected)}


def test_time_keeps_all_its_digits(capsys: pytest.CaptureFixture[str]) -> None:
    entry = printed(capsys, "codex", "--server", "auto", "--timeout", "1234567.5")
    assert entry["args"][-2:] == ["--timeout", "1234567.5"]
    assert entry["tool_timeout_sec"] == 1234597.5


def test_value_that_begins_with_a_hyphen_is_one_word_with_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "cursor", "--server", "auto", "--kernel=-odd")["args"][-1] == "--kernel=-odd"
    assert printed(capsys, "cursor", "--server", "auto", "--session=-odd")["args"][-1] == "--session=-odd"


def test_profile_whose_token_file_is_missing_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "add", "lab", "--server", URL, "--token-file", "gone.token"]) == 0
    assert main(["mcp", "--print-config", "codex", "--stdio", "--server", "lab"]) == 2
    refused = capsys.readouterr().err
    assert f"token_file of the profile 'lab': there is no file {home / 'gone.token'}" in refused
    printed(capsys, "codex", "--server", "lab", "--token-file", "agent.token")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--server", URL], "add --token-file FILE, or name a profile"),
        (["--server", f"{URL}?token={TOKEN}"], "the URL holds a token"),
        (["--server", "lba", "--token-file", "agent.token"], "there is no profile 'lba'"),
        (["--server", "ftp://x/", "--token-file", "agent.token"], "'ftp://x' is not the URL"),
        (["--server", URL, "--token-file", "none"], "there is no file "),
        (["--server", URL, "--token-file", "."], "--token-file: there is no file "),
        (["--server", URL, "--token-file", "agent.token", "--ca-bundle", "none"], "--ca-bundle: there is no file"),
    ],
)
def test_configuration_that_would_not_work_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--print-config", "claude-code", "--stdio", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == "" and TOKEN not in shown.err


def test_profile_without_token_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "add", "open", "--server", URL]) == 0
    assert main(["mcp", "--print-config", "codex", "--stdio", "--server", "open"]) == 2
    assert "the configuration must say where the token of open is" in capsys.readouterr().err


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    assert main(["mcp", "--print-config", "codex", "--stdio", "--server", "auto"]) == 2
    assert "jupyter-exec is in none of" in capsys.readouterr().err


#: Where each client's entry for the endpoint refers to the token.
REFERENCES: dict[str, dict[str, Any]] = {
    "claude-code": {"headers": {"Authorization": "Bearer ${JUPYTER_TOKEN}"}},
    "cursor": {"headers": {"Authorization": "Bearer ${env:JUPYTER_TOKEN}"}},
    "vscode": {"headers": {"Authorization": "Bearer ${input:jupyter-token}"}},
    "codex": {"bearer_token_env_var": "JUPYTER_TOKEN"},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_configuration_of_the_endpoint_refers_to_the_token(client: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry, note = printed_url(capsys, client, "--server", f"{URL}user/ada/lab")
    assert entry.items() >= {"url": f"{URL}user/ada/exec/mcp", **REFERENCES[client]}.items()
    assert ("for the token" if client == "vscode" else 'export JUPYTER_TOKEN="$(cat FILE)"') in note


def test_token_file_is_read_by_claude_code_itself(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "it's mine").write_text("a%sb\n")
    for client in ("claude", "claude-code"):
        entry, note = printed_url(capsys, client, "--server", URL, "--token-file", "it's mine")
        assert set(entry) == {"type", "url", "headersHelper"} and note == ""
    done = subprocess.run(["sh", "-c", entry["headersHelper"]], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"Authorization": "Bearer a%sb"}


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_note_shows_how_to_set_the_variable_from_the_token_file(
    client: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "add", "lab", "--server", URL, "--token-file", "agent.token"]) == 0
    capsys.readouterr()
    entry, note = printed_url(capsys, client, "--server", "lab")
    assert entry["url"] == f"{URL}exec/mcp"
    command = f'{note.partition(": export ")[2].strip()}; printf %s "$JUPYTER_TOKEN"'
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout == TOKEN
    assert str(home / "agent.token") in note


def test_vscode_asks_for_the_token_and_hides_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--print-config", "vscode", "--server", URL]) == 0
    (asked,) = json.loads(capsys.readouterr().out)["inputs"]
    assert (asked["id"], asked["password"]) == ("jupyter-token", True)


def test_codex_waits_longer_for_the_endpoint_than_code_may_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_url(capsys, "codex", "--server", URL)[0]["tool_timeout_sec"] == 90


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--server", URL, "--kernel", "ir"], "cannot have --kernel; add --stdio"),
        (["--server", URL, "--session", "s", "--timeout", "2m"], "cannot have --session, --timeout; add --stdio"),
        (["--server", URL, "--ca-bundle", "ca.pem"], "cannot have --ca-bundle; add --stdio"),
        (["--server", f"{URL}?token={TOKEN}"], "the URL holds a token"),
        (["--server", "lba"], "there is no profile 'lba'"),
        (["--server", URL, "--token-file", "none"], "--token-file: there is no file "),
    ],
)
def test_configuration_of_the_endpoint_that_would_not_work_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--print-config", "claude", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == "" and TOKEN not in shown.err


def test_stdio_without_print_config_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--server", URL, "--stdio"]) == 2
    assert "--stdio goes with --print-config" in capsys.readouterr().err
