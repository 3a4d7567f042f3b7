"""Configurations of MCP clients that start ``jupyter exec mcp``; none holds a token.

`mcp_command` decides what is started; this module knows each client's file format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: The server's name in a client.
SERVER_NAME = "jupyter"
# Codex stops waiting for a tool after 60 s, which is when code is stopped: its output would be lost.
_CODEX_MARGIN_SECONDS = 30


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


def format_for_claude_code(program: McpProgram) -> str:
    """Return the content of ``.mcp.json``."""
    return _as_json({"mcpServers": {SERVER_NAME: {"type": "stdio", **_entry(program)}}})


def format_for_cursor(program: McpProgram) -> str:
    """Return the content of ``.cursor/mcp.json``."""
    return _as_json({"mcpServers": {SERVER_NAME: _entry(program)}})


def format_for_vscode(program: McpProgram) -> str:
    """Return the content of ``.vscode/mcp.json``."""
    return _as_json({"servers": {SERVER_NAME: {"type": "stdio", **_entry(program)}}})


def format_for_codex(program: McpProgram) -> str:
    """Return a table for ``~/.codex/config.toml``."""
    lines = [
        f"[mcp_servers.{SERVER_NAME}]",
        f"command = {_as_toml(program.command)}",
        f"args = [{', '.join(map(_as_toml, program.args))}]",
        f"tool_timeout_sec = {seconds_text(program.timeout_seconds + _CODEX_MARGIN_SECONDS)}",
    ]
    if program.env:
        variables = ", ".join(f"{_as_toml(name)} = {_as_toml(value)}" for name, value in program.env.items())
        lines.append(f"env = {{ {variables} }}")
    return "\n".join(lines)


#: A function for each client, by the name that ``--print-config`` takes.
CLIENTS = {
    "claude-code": format_for_claude_code,
    "cursor": format_for_cursor,
    "vscode": format_for_vscode,
    "codex": format_for_codex,
}


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
