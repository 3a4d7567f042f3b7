"""A client of the Model Context Protocol in the place of a page's: it uses a configuration, and runs code.

Run with the Python of the page's environment: ``python mcp_client.py CLIENT < CONFIGURATION``. It starts the program
that the configuration names, or connects to its URL. It has the token from the variable or the command named there.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: How clients write the place of the token; a person types the one for VS Code.
_REFERENCES = ("${JUPYTER_TOKEN}", "${env:JUPYTER_TOKEN}", "${input:jupyter-token}")


def headers_of(entry: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a configuration, with the token."""
    if "headersHelper" in entry:
        done = subprocess.run(["sh", "-c", entry["headersHelper"]], capture_output=True, check=True)
        return dict(json.loads(done.stdout))
    if "bearer_token_env_var" in entry:
        return {"Authorization": f"Bearer {os.environ[entry['bearer_token_env_var']]}"}
    value = str(entry["headers"]["Authorization"])
    for reference in _REFERENCES:
        value = value.replace(reference, os.environ["JUPYTER_TOKEN"])
    return {"Authorization": value}


async def main(client: str, text: str) -> None:
    """List the tools, and run code in two calls."""
    document = tomllib.loads(text) if client == "codex" else json.loads(text)
    servers = document[{"codex": "mcp_servers", "vscode": "servers"}.get(client, "mcpServers")]
    entry = servers["jupyter"]
    if "command" in entry:
        await use(StdioServerParameters(command=entry["command"], args=entry["args"], env=entry.get("env")))
    else:
        async with httpx2.AsyncClient(headers=headers_of(entry), timeout=60) as http:
            await use(streamable_http_client(entry["url"], http_client=http))


async def use(server: Any) -> None:
    """Run code in a session of its own."""
    async with Client(server) as agent:
        print(len((await agent.list_tools()).tools), "tools")
        first: Any = await agent.call_tool("execute_code", {"code": "squares = [n * n for n in range(1, 21)]"})
        session = first.structured_content["session"]
        result: Any = await agent.call_tool("execute_code", {"code": "sum(squares)", "session": session})
        print(*(block.text for block in result.content))


asyncio.run(main(sys.argv[1], sys.stdin.read()))
