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
from .listening_port import choose_port, port_number
from .messages import UsageError, unreadable_text
from .start_checks import refuse_policies, refuse_root
from .token_file import read_token_file

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from .gateway_app import ExecGatewayApp

_PORT_OPTIONS = ("--port", "--sock", "--ServerApp.port", "--ServerApp.sock", "--KernelGatewayApp.port")


def add_serve_command(commands: Any) -> None:
    """Add ``jupyter exec serve``."""
    parser = add_command(commands, "serve", "serve exec/v1 from a Jupyter Server or a Kernel Gateway", serve)
    parser.add_argument("--gateway", action="store_true", help="a Kernel Gateway (default: a Jupyter Server)")
    parser.add_argument("--ip", default="127.0.0.1", metavar="ADDRESS", help="listen here (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=port_number,
        help="this port or none; 0 for any free one (default: 8888, or the next free one)",
    )
    parser.add_argument("--allow-root", action="store_true", help="serve although you are root")
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
    if not any(option.startswith(_PORT_OPTIONS) for option in args.options):  # else the application chooses
        args.port = choose_port(args.ip, args.port)
    token, shown = _token(args.token_file)
    if args.gateway:
        if not args.allow_root:
            refuse_root()
        _serve_gateway(args, token, shown)
    else:
        _serve_jupyter(args, token, shown)
    return 0


def _token(path: str | None) -> tuple[str, bool]:
    """Return the token, and whether it is new and must be shown."""
    if path is not None:
        file = Path(path)
        try:
            if not file.exists():
                _make_token_file(file)
        except OSError as error:
            raise UsageError(f"--token-file {unreadable_text(path, error)}") from error
        token = read_token_file(path)
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


def _print_serving(url: str, token: str, *, shown: bool) -> None:
    """Print where the server is, its token if that is new, and a command to try."""
    lines = [f"Serving exec/v1 at {url}"]
    if shown:
        lines.append(f"Token: {token}")
    lines.append(f"Try:   jupyter exec run -c 'print(1)' --server {url}")
    print("\n".join(lines), file=sys.stderr, flush=True)


def _info(args: argparse.Namespace, port: int, *, use_https: bool, token: str) -> JupyterConnectionInfo:
    # A wildcard address is one to listen on; clients cannot connect to it everywhere.
    host = "localhost" if args.ip in ("", "*", "0.0.0.0", "::") else args.ip  # noqa: S104  # only compared
    return JupyterConnectionInfo(host, use_https, port, token, args.base_url)


def _serve_jupyter(args: argparse.Namespace, token: str, shown: bool) -> None:
    from traitlets.config import Config

    from .server_app import launch_server

    config = Config()
    config.ServerApp.ip = args.ip
    if args.port is not None:
        config.ServerApp.port = args.port
        config.ServerApp.port_retries = 0  # the port was tried; another one must not be used quietly
    config.ServerApp.base_url = args.base_url
    config.ServerApp.open_browser = False
    config.ServerApp.jpserver_extensions = {"jupyter_exec_ext": True}
    if args.allow_root:
        config.ServerApp.allow_root = True
    config.IdentityProvider.token = token

    def on_listening(app: ServerApp) -> None:
        _print_serving(_info(args, app.port, use_https=bool(app.certfile), token=token).url, token, shown=shown)

    launch_server(args.options, config, on_listening)


def _serve_gateway(args: argparse.Namespace, token: str, shown: bool) -> None:
    from jupyter_core.paths import jupyter_runtime_dir, secure_write
    from traitlets.config import Config

    from .gateway_app import launch

    config = Config()
    config.KernelGatewayApp.ip = args.ip
    if args.port is not None:
        config.KernelGatewayApp.port = args.port
    config.KernelGatewayApp.base_url = args.base_url
    # Not as a command-line option, which every user of the machine can read.
    config.KernelGatewayApp.auth_token = token
    config.JupyterWebsocketPersonality.list_kernels = True
    file = Path(jupyter_runtime_dir()) / f"jpserver-{os.getpid()}.json"

    def before_listening(app: ExecGatewayApp) -> None:
        refuse_policies(app.personality.engine.policy_problem)

    def on_listening(app: ExecGatewayApp) -> None:
        info = _info(args, app.port, use_https=bool(app.keyfile), token=token)
        file.parent.mkdir(parents=True, exist_ok=True)
        with secure_write(str(file)) as out:
            # Jupyter servers write this file, by which `--server auto` and `jupyter server list` find them.
            json.dump({"url": info.url, "token": token, "base_url": info.base_url, "pid": os.getpid()}, out)
        _print_serving(info.url, token, shown=shown)

    try:
        launch(args.options, config, on_listening, before_listening)
    finally:
        file.unlink(missing_ok=True)  # it holds the token, and `--server auto` would find a server that is gone
