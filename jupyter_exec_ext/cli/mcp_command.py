"""``jupyter exec mcp``: a server of the Model Context Protocol (MCP) at standard input and output."""

from __future__ import annotations

import argparse
from typing import Any

from .common_options import add_command, duration
from .messages import UsageError


def add_mcp_command(commands: Any) -> None:
    """Add ``jupyter exec mcp``."""
    parser = add_command(
        commands, "mcp", "let a client of the Model Context Protocol (MCP) run code on a server", serve
    )
    parser.add_argument("--server", required=True, metavar="URL", help="the Jupyter server; the token is JUPYTER_TOKEN")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    where.add_argument("--session", metavar="ID", help="run in this session and keep it (default: a new one)")
    parser.add_argument("--timeout", type=duration, metavar="TIME", help="stop code after this run time")


def serve(args: argparse.Namespace) -> int:
    """Serve the client at standard input and output until it disconnects."""
    try:
        # An optional dependency; other commands must not need it.
        from ..adapters.mcp import main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError(
            "the Python package mcp is not installed; install it with: pip install 'jupyter-exec-ext[mcp]'"
        ) from error
    options = {"--server": args.server, "--kernel": args.kernel, "--session": args.session, "--timeout": args.timeout}
    # With '=', so that a value may begin with '-'.
    main([f"{name}={value}" for name, value in options.items() if value is not None])
    return 0
