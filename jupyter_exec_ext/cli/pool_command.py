"""``jupyter exec pool``: one endpoint over many servers of a JupyterHub."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

from .common_options import add_command
from .messages import UsageError

_DESCRIPTION = """\
Serve exec/v1, exec/aca and exec/mcp from many servers of a JupyterHub, as one
of its services. The environment has what the Hub gives services:
JUPYTERHUB_API_TOKEN and JUPYTERHUB_API_URL. The settings are those of
c.ExecPool, in jupyter_exec_pool_config.py or after '--'.
"""


def add_pool_command(commands: Any) -> None:
    """Add ``jupyter exec pool``."""
    parser = add_command(commands, "pool", "serve exec/v1 from many servers of a JupyterHub", serve_pool)
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", metavar="FILE", help="configuration, such as c.ExecPool.max_servers = 8")
    parser.add_argument("options", nargs="*", metavar="-- OPTION", help="after --: settings of c.ExecPool")


def serve_pool(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    if find_spec("jupyterhub") is None:
        raise UsageError("a pool needs JupyterHub's client library: pip install 'jupyter-exec-ext[hub]'")
    from ..fleet.pool_app import ExecPoolApp

    config = [f"--config={args.config}"] if args.config else []
    ExecPoolApp.launch_instance([*config, *args.options])
    return 0
