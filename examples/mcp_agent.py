"""A client of the Model Context Protocol (MCP) that runs code, with a script in the place of a model.

pip install 'jupyter-exec-ext[mcp]'
"""

import asyncio
import sys
import tempfile

from mcp import Client, StdioServerParameters

from jupyter_exec_ext import LocalJupyterServer

SCRIPT = ["squares = [n * n for n in range(1, 21)]", "sum(squares)"]


async def main() -> None:
    """Start the MCP server, as a client's configuration does, and have it run two pieces of code."""
    with tempfile.TemporaryDirectory() as logs, LocalJupyterServer(log_file=f"{logs}/gateway.log") as server:
        info = server.connection_info
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "jupyter_exec_ext.adapters.mcp", "--server", info.url],
            env={"JUPYTER_TOKEN": info.token or ""},
        )
        async with Client(command) as client:
            for code in SCRIPT:
                result = await client.call_tool("execute_code", {"code": code})
            print(f"The 20 numbers add up to {result.content[0].text}.")


if __name__ == "__main__":
    asyncio.run(main())
