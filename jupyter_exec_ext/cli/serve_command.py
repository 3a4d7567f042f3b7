"""``jupyter exec serve``: a Jupyter Server or Kernel Gateway with ``exec/v1``, without configuration files."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client.server_connection import JupyterConnectionInfo
from .common_options import add_command

if TYPE_CHECKING:
    from .gateway_app import ExecGatewayApp


def add_serve_command(commands: Any) -> None:
    """Add ``jupyter exec serve``."""
    parser = add_command(commands, "serve", "serve exec/v1 from a Jupyter Server or a Kernel Gateway", serve)
    parser.add_argument("--gateway", action="store_true", help="a Kernel Gateway (default: a Jupyter Server)")
    parser.add_argument("--ip", default="127.0.0.1", metavar="ADDRESS", help="listen here (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8888, help="0 for a free one (default: 8888)")
    parser.add_argument("--base-url", default="/", metavar="PATH", help="serve below this path (default: /)")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="take the token from this file, made with a new token if it is not there (default: JUPYTER_TOKEN, else a "
        "new token, which is shown)",
    )
    parser.add_argument(
        "options", nargs="*", metavar="-- OPTION", help="after --: options of the Jupyter Server or Kernel Gateway"
    )


def serve(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    token, shown = _token(args.token_file)
    if args.gateway:
        _serve_gateway(args, token, shown)
    else:
        _serve_jupyter(args, None if shown else token)
    return 0


def _token(path: str | None) -> tuple[str, bool]:
    """Return the token, and whether it is new and must be shown."""
    if path is not None:
        file = Path(path)
        if not file.exists():
            _make_token_file(file)
        token = file.read_text().strip()
        if not token:  # an empty token would open the server to everyone
            raise ValueError(f"the token file {path} is empty; write a token into it, or remove it to get a new one")
        return token, False
    # Removed from the environment, so that child processes do not inherit it.
    given = os.environ.pop("JUPYTER_TOKEN", "").strip()
    return given or secrets.token_hex(32), not given


def _make_token_file(file: Path) -> None:
    """Write a new token in one step, so that the file never exists without it."""
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # for its owner alone
    try:
        with open(descriptor, "w") as new:
            new.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(FileExistsError):  # another server was faster; both use its token
            os.link(draft, file)
    finally:
        os.unlink(draft)


def _serve_jupyter(args: argparse.Namespace, token: str | None) -> None:
    from jupyter_server.serverapp import ServerApp
    from traitlets.config import Config

    config = Config()
    config.ServerApp.ip = args.ip
    config.ServerApp.port = args.port
    config.ServerApp.base_url = args.base_url
    config.ServerApp.open_browser = False
    config.ServerApp.jpserver_extensions = {"jupyter_exec_ext": True}
    if token is not None:  # without it the server makes a token and shows it, which it does not do for a given one
        config.IdentityProvider.token = token
    ServerApp.launch_instance(argv=args.options, config=config)


def _serve_gateway(args: argparse.Namespace, token: str, shown: bool) -> None:
    from jupyter_core.paths import jupyter_runtime_dir, secure_write
    from traitlets.config import Config

    from .gateway_app import launch

    config = Config()
    config.KernelGatewayApp.ip = args.ip
    config.KernelGatewayApp.port = args.port
    config.KernelGatewayApp.base_url = args.base_url
    # Not as a command-line option, which every user of the machine can read.
    config.KernelGatewayApp.auth_token = token
    config.JupyterWebsocketPersonality.list_kernels = True
    file = Path(jupyter_runtime_dir()) / f"jpserver-{os.getpid()}.json"

    def on_listening(app: ExecGatewayApp) -> None:
        # A wildcard address is one to listen on; clients cannot connect to it everywhere.
        host = "localhost" if args.ip in ("", "0.0.0.0", "::") else args.ip  # noqa: S104  # only compared
        info = JupyterConnectionInfo(host, bool(app.keyfile), app.port, token, args.base_url)
        file.parent.mkdir(parents=True, exist_ok=True)
        with secure_write(str(file)) as out:
            # Jupyter servers write this file, by which `--server auto` and `jupyter server list` find them.
            json.dump({"url": info.url, "token": token, "base_url": info.base_url, "pid": os.getpid()}, out)
        print(f"Serving exec/v1 at {info.url}", file=sys.stderr)
        if shown:
            print(f"Token: {token}", file=sys.stderr)
        print(f"Try:   jupyter exec run -c 'print(1)' --server {info.url}", file=sys.stderr)

    try:
        launch(args.options, config, on_listening)
    finally:
        file.unlink(missing_ok=True)  # it holds the token, and `--server auto` would find a server that is gone
