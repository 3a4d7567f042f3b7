"""MCP endpoint: the Model Context Protocol on Jupyter's own port, under the same tokens as ``exec/v1``.

`mcp_handler` serves it in Tornado, `transport` decides about each message, and the official SDK validates and
dispatches. `tools`, `resources` and `tasks` are ours. `adapters.mcp` is the program at standard input and output.

Only `mcp_handler`, `endpoint` and `leases` are imported without the SDK, which is the optional package ``mcp``.
"""
