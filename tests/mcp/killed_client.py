"""MCP client for tests that kill it: ``python -m tests.mcp.killed_client URL REVISION idle|busy``; reads its token."""

from __future__ import annotations

import sys
import threading

from tests.mcp.raw_client import HANDSHAKE, RawClient, events


def main(url: str, revision: str, doing: str) -> None:
    """Make a session, print that it is there, and run code in it or wait."""
    client = RawClient(url, sys.stdin.readline().strip(), revision)
    if revision == HANDSHAKE:
        client.shake_hands()
        stream = client.get()
        threading.Thread(target=lambda: list(stream.iter_content(None)), daemon=True).start()
    session = client.tool("execute_code", code="1")["structuredContent"]["session"]
    if doing == "busy":
        code = "import time\nprint('go', flush=True)\ntime.sleep(600)"
        arguments = {"code": code, "session": session}
        params = {"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": 1}}
        reader = events(client.open("tools/call", params))  # kept, since its end closes the connection
        next(reader)
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:4])
