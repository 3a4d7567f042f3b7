"""Which server a command talks to."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..client.connection import JupyterConnectionInfo
from ..client.sync import ExecClient
from ..executors.local import LocalJupyterServer


def named_server(args: argparse.Namespace) -> JupyterConnectionInfo:
    """Return the server that ``--server`` names.

    Raises
    ------
    ValueError
        If it is ``auto`` and none runs, or no URL.
    """
    if args.server == "auto":
        found = JupyterConnectionInfo.discover()
        if not found:
            raise ValueError("no Jupyter server of yours runs on this machine; start one, or name it with --server URL")
        return found[0]
    token = _token(args.token_file)
    info = JupyterConnectionInfo.from_url(args.server, token)
    if info.token is None:
        info.token = os.environ.get("JUPYTER_TOKEN") or None
    if args.ca_bundle:
        info.verify = args.ca_bundle
    return info


def _token(path: str | None) -> str | None:
    return Path(path).read_text().strip() if path else None


@contextmanager
def client_for(args: argparse.Namespace) -> Iterator[ExecClient]:
    """Yield a client of the server that ``--server`` names, or of one that lives as long as the context."""
    if args.server is not None:
        with ExecClient(named_server(args)) as client:
            yield client
        return
    if sys.stderr.isatty():
        print("Starting a gateway ...", file=sys.stderr)
    with (
        tempfile.TemporaryDirectory() as logs,
        LocalJupyterServer(log_file=str(Path(logs) / "gateway.log")) as server,
        ExecClient(server) as client,
    ):
        yield client
