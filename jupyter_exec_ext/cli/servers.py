"""Which server a command talks to."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from ..client.connection import JupyterConnectionInfo
from ..client.sync import ExecClient
from ..executors.docker import DockerJupyterServer
from ..executors.local import LocalJupyterServer
from .signals import leaving_in_order


class UsageError(Exception):
    """The command was given something it cannot use."""


def named_server(args: argparse.Namespace) -> JupyterConnectionInfo:
    """Return the server that ``--server`` names.

    Raises
    ------
    ValueError
        If it is ``auto`` and none runs, or no URL.
    """
    token = _token(args.token_file)
    if args.server == "auto":
        found = _discovered()
        info = found if token is None else replace(found, token=token)
    else:
        info = JupyterConnectionInfo.from_url(args.server, token)
    if info.token is None:
        info = replace(info, token=os.environ.get("JUPYTER_TOKEN", "").strip() or None)
    return replace(info, verify=args.ca_bundle) if args.ca_bundle else info


def _discovered() -> JupyterConnectionInfo:
    """Return the newest server on this machine; in a terminal of a JupyterHub user's server, this one.

    The Hub's token of the terminal is for this server alone, and sent to no other.
    """
    found = JupyterConnectionInfo.discover()
    if not found:
        raise ValueError("no Jupyter server of yours runs on this machine; start one, or name it with --server URL")
    own = [info for info in found if info.base_url == os.environ.get("JUPYTERHUB_SERVICE_PREFIX")]
    if own and own[0].token is None:
        return replace(own[0], token=os.environ.get("JUPYTERHUB_API_TOKEN") or None)
    return (own or found)[0]


def _token(path: str | None) -> str | None:
    if not path:
        return None
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file cannot be read: {error}") from error


@contextmanager
def client_for(args: argparse.Namespace) -> Iterator[ExecClient]:
    """Yield a client of the server that ``--server`` names, or of one that lives as long as the context."""
    if args.server is not None:
        with leaving_in_order(), ExecClient(named_server(args)) as client:
            yield client
        return
    image = getattr(args, "docker", None)
    if sys.stderr.isatty():
        print(f"Starting a {'gateway' if image is None else 'container'} ...", file=sys.stderr)
    with (
        leaving_in_order(),
        tempfile.TemporaryDirectory() as logs,
        _server_in_a_container(image) if image is not None else _server_here(logs) as server,
        ExecClient(server) as client,
    ):
        yield client


def _server_here(logs: str) -> AbstractContextManager[LocalJupyterServer]:
    return LocalJupyterServer(log_file=str(Path(logs) / "gateway.log"))


def _server_in_a_container(image: str) -> AbstractContextManager[DockerJupyterServer]:
    """Start a server in a container of an image, an empty name being ours."""
    try:
        return DockerJupyterServer(custom_image_name=image or None)
    except ImportError as error:
        raise UsageError(str(error)) from error


@contextmanager
def api_client_for(args: argparse.Namespace) -> Iterator[ExecClient]:
    """Yield a client as `client_for` does, of a server that has ``exec/v1``."""
    with client_for(args) as client:
        client.info()  # tells a server without exec/v1 from something that is not there
        yield client
