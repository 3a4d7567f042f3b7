"""A client of the Model Context Protocol in the place of a page's: it starts what a configuration says, and runs code.

Run with the Python of the page's environment: ``python mcp_client.py CLIENT < CONFIGURATION``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import Client, StdioServerParameters

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


async def main(client: str, text: str) -> None:
    """List the tools, and run code in two calls."""
    document = tomllib.loads(text) if client == "codex" else json.loads(text)
    ((_, servers),) = document.items()
    entry = servers["jupyter"]
    program = StdioServerParameters(command=entry["command"], args=entry["args"], env=entry.get("env"))
    async with Client(program) as agent:
        print(*(tool.name for tool in (await agent.list_tools()).tools))
        for code in ("squares = [n * n for n in range(1, 21)]", "sum(squares)"):
            result: Any = await agent.call_tool("execute_code", {"code": code})
        print(*(block.text for block in result.content))


asyncio.run(main(sys.argv[1], sys.stdin.read()))
