"""Configurations of MCP clients: for the endpoint ``exec/mcp``, or to start ``jupyter exec mcp``. None holds a token.

`mcp_command` decides which server they lead to; this module knows each client's file format.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..client.local_servers import TOKEN_VARIABLE

#: The server's name in a client.
SERVER_NAME = "jupyter"
#: Run time after which code is stopped, if neither the model nor an option says otherwise.
DEFAULT_TIMEOUT_SECONDS = 60.0
# Codex stops waiting for a tool after 60 s, which is when code is stopped: its output would be lost.
_CODEX_MARGIN_SECONDS = 30
_VSCODE_INPUT = "jupyter-token"


@dataclass(frozen=True)
class McpProgram:
    """The program that a client starts.

    Parameters
    ----------
    command : str
        Absolute path of the program.
    args : sequence of str
        Its arguments.
    timeout_seconds : float
        Run time after which it stops code.
    env : mapping
        Environment variables that it needs beside the client's own.
    """

    command: str
    args: Sequence[str]
    timeout_seconds: float
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class McpUrl:
    """The endpoint that a client connects to.

    Parameters
    ----------
    url : str
        Its address, without a token.
    token_file : str or None
        Absolute path of the file that holds the token, if it is known.
    """

    url: str
    token_file: str | None = None

    @property
    def token_command(self) -> str:
        """Shell words that stand for the token."""
        return '"$(cat ' + (shlex.quote(self.token_file) if self.token_file is not None else "FILE") + ')"'


@dataclass(frozen=True)
class ClientFormat:
    """A client's configuration, in its file format.

    Parameters
    ----------
    for_url : callable
        Returns the configuration for the endpoint.
    for_program : callable
        Returns the configuration that starts the program.
    next_step : callable
        Returns the sentence on how the client gets the token of the endpoint; empty if it reads the token's file.
    """

    for_url: Callable[[McpUrl], str]
    for_program: Callable[[McpProgram], str]
    next_step: Callable[[McpUrl], str]


def _claude_code_url(endpoint: McpUrl) -> str:
    """Return the content of ``.mcp.json``."""
    if endpoint.token_file is None:
        headers: dict[str, object] = {"headers": {"Authorization": f"Bearer ${{{TOKEN_VARIABLE}}}"}}
    else:
        # A command whose output, as JSON, is added to the headers; Claude Code runs it at each connection.
        headers = {"headersHelper": f"""printf '{{"Authorization": "Bearer %s"}}' {endpoint.token_command}"""}
    return _as_json({"mcpServers": {SERVER_NAME: {"type": "http", "url": endpoint.url, **headers}}})


def _claude_code_program(program: McpProgram) -> str:
    return _as_json({"mcpServers": {SERVER_NAME: {"type": "stdio", **_entry(program)}}})


def _cursor_url(endpoint: McpUrl) -> str:
    """Return the content of ``.cursor/mcp.json``."""
    headers = {"Authorization": f"Bearer ${{env:{TOKEN_VARIABLE}}}"}
    return _as_json({"mcpServers": {SERVER_NAME: {"url": endpoint.url, "headers": headers}}})


def _cursor_program(program: McpProgram) -> str:
    return _as_json({"mcpServers": {SERVER_NAME: _entry(program)}})


def _vscode_url(endpoint: McpUrl) -> str:
    """Return the content of ``.vscode/mcp.json``."""
    asked = {"type": "promptString", "id": _VSCODE_INPUT, "description": f"Token for {endpoint.url}", "password": True}
    headers = {"Authorization": f"Bearer ${{input:{_VSCODE_INPUT}}}"}
    server = {"type": "http", "url": endpoint.url, "headers": headers}
    return _as_json({"inputs": [asked], "servers": {SERVER_NAME: server}})


def _vscode_program(program: McpProgram) -> str:
    return _as_json({"servers": {SERVER_NAME: {"type": "stdio", **_entry(program)}}})


def _codex_url(endpoint: McpUrl) -> str:
    """Return a table for ``~/.codex/config.toml``."""
    return "\n".join(
        [
            f"[mcp_servers.{SERVER_NAME}]",
            f"url = {_as_toml(endpoint.url)}",
            f"bearer_token_env_var = {_as_toml(TOKEN_VARIABLE)}",
            _codex_timeout(DEFAULT_TIMEOUT_SECONDS),
        ]
    )


def _codex_program(program: McpProgram) -> str:
    lines = [
        f"[mcp_servers.{SERVER_NAME}]",
        f"command = {_as_toml(program.command)}",
        f"args = [{', '.join(map(_as_toml, program.args))}]",
        _codex_timeout(program.timeout_seconds),
    ]
    if program.env:
        variables = ", ".join(f"{_as_toml(name)} = {_as_toml(value)}" for name, value in program.env.items())
        lines.append(f"env = {{ {variables} }}")
    return "\n".join(lines)


def _codex_timeout(run_seconds: float) -> str:
    return f"tool_timeout_sec = {seconds_text(run_seconds + _CODEX_MARGIN_SECONDS)}"


def _read_from_environment(client: str) -> Callable[[McpUrl], str]:
    return lambda endpoint: (
        f"{client} reads the token from {TOKEN_VARIABLE}; set it where you start {client}: "
        f"export {TOKEN_VARIABLE}={endpoint.token_command}"
    )


def _next_step_of_claude_code(endpoint: McpUrl) -> str:
    return "" if endpoint.token_file is not None else _read_from_environment("Claude Code")(endpoint)


def _next_step_of_vscode(endpoint: McpUrl) -> str:
    return "VS Code asks for the token when it first starts the server, and keeps it among its secrets" + (
        "" if endpoint.token_file is None else f"; paste the content of {endpoint.token_file}"
    )


#: Formats by the name that ``--print-config`` takes.
CLIENTS = {
    "claude-code": ClientFormat(_claude_code_url, _claude_code_program, _next_step_of_claude_code),
    "cursor": ClientFormat(_cursor_url, _cursor_program, _read_from_environment("Cursor")),
    "vscode": ClientFormat(_vscode_url, _vscode_program, _next_step_of_vscode),
    "codex": ClientFormat(_codex_url, _codex_program, _read_from_environment("Codex")),
}
#: Other names that ``--print-config`` takes.
ALIASES = {"claude": "claude-code"}


def seconds_text(seconds: float) -> str:
    """Return a number of seconds with all its digits, and without a fraction that is zero."""
    return str(float(seconds)).removesuffix(".0")


def _entry(program: McpProgram) -> dict[str, object]:
    entry: dict[str, object] = {"command": program.command, "args": list(program.args)}
    return entry | ({"env": dict(program.env)} if program.env else {})


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _as_toml(text: str) -> str:
    # JSON escapes as TOML does, but for this one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
