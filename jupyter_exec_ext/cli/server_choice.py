"""Choice of a command's server: options, their check, and a client of the chosen or started server."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from ..client.local_servers import (
    AUTO,
    NONE,
    SERVER_VARIABLE,
    connection_to_named,
    newest_with_api,
    server_of_environment,
    token_of_environment,
)
from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo
from ..client.sync.client import ExecClient
from ..errors import ConnectionFailed
from ..executors.binder import BinderServer, build_path
from ..executors.docker import DockerJupyterServer
from ..executors.hub import JupyterHubServer
from ..executors.local import LocalJupyterServer
from ..executors.remote_launch import show_phases
from .messages import UsageError, print_message
from .short_ids import find_session, is_whole_id
from .token_file import note_if_others_can_read, read_token_file

_SERVER_HELP = (
    "URL of a Jupyter server, as its log or a browser shows it; the name of a profile; or 'auto' for the newest of "
    "your servers on this machine that has exec/v1"
)
BINDER_URL = "https://mybinder.org"


def add_server_options(
    parser: argparse.ArgumentParser, default: str | None, without: str, *, leaves_hub_token_valid: bool = False
) -> None:
    """Add the options that choose the server. `without` describes the server that is used without them.

    A command without a `default` needs a server only while it runs. It may launch a Binder or a container, and it stops
    a server that it has started at a JupyterHub. One with `leaves_hub_token_valid` makes something, such as a session,
    that would end with its Hub token, so the token is not revoked when the command ends.
    """
    passing = default is None
    parser.set_defaults(
        stop_server=passing, leaves_hub_token_valid=leaves_hub_token_valid, binder=None, binder_url=None, docker=None
    )
    group = parser.add_argument_group("server")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--server", metavar="URL|NAME|auto", default=default, help=_server_help(without, passing))
    where.add_argument(
        "--hub",
        metavar="URL",
        help="a JupyterHub: your server there, started if it does not run"
        + (", and then stopped again" if passing else ", and left running"),
    )
    group.add_argument("--hub-user", metavar="NAME", help="with --hub: whose server (default: the token's user's)")
    group.add_argument("--hub-server", metavar="NAME", help="with --hub: one of the user's named servers")
    if passing:
        where.add_argument(
            "--binder",
            type=binder_spec,
            metavar="SPEC",
            help="a server made from a repository, such as gh/org/repo/HEAD, launched for this at a BinderHub",
        )
        where.add_argument(
            "--docker",
            nargs="?",
            const="",
            metavar="IMAGE",
            help="a server in a container, which is removed afterwards; FILE stands before this option. IMAGE runs a "
            "gateway on port 8888 with the token in TOKEN (default: this package's own, built when first needed)",
        )
        group.add_argument(
            "--binder-url",
            metavar="URL",
            help=f"with --binder: the BinderHub (default: {BINDER_URL})",
        )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="file that holds the server's or the Hub's token; without it the token in the URL, then JUPYTER_TOKEN, is "
        "used",
    )
    group.add_argument("--ca-bundle", metavar="FILE", help="certificates to check an https server with")


def _server_help(without: str, passing: bool) -> str:
    none = f"; or '{NONE}', whatever {SERVER_VARIABLE} is" if passing else ""
    return f"{_SERVER_HELP}{none} (default: {SERVER_VARIABLE}, else {without})"


def binder_spec(text: str) -> str:
    """Return the SPEC of a Binder; raise `ValueError` for an invalid one."""
    build_path(text)
    return text


# argparse's message names the type so.
binder_spec.__name__ = "spec (such as gh/org/repo/HEAD)"


def check_server_options(args: argparse.Namespace) -> None:
    """Reject options that would have no effect.

    Raises
    ------
    UsageError
        For such an option; the message names the option that it goes with.
    """
    if "hub" not in args:  # the command needs no server
        return
    at_hub, at_binder = args.hub is not None, args.binder is not None
    # `run --session ID` alone stands for `--server auto`, so a token and certificates have an effect there.
    elsewhere = at_hub or at_binder or args.server is not None or bool(getattr(args, "session", None))
    for option, value, has_effect, with_ in (
        ("--hub-user", args.hub_user, at_hub, "--hub URL"),
        ("--hub-server", args.hub_server, at_hub, "--hub URL"),
        ("--binder-url", args.binder_url, at_binder, "--binder SPEC"),
        ("--token-file", args.token_file, elsewhere, "--server, --hub or --binder"),
        ("--ca-bundle", args.ca_bundle, elsewhere, "--server, --hub or --binder"),
    ):
        if value is not None and not has_effect:
            raise UsageError(f"{option} goes with {with_}, which is missing; nothing was started")


def apply_environment(args: argparse.Namespace) -> None:
    """Put the server of ``JUPYTER_EXEC_SERVER`` in the place of a server that the options leave open.

    ``--server none`` becomes None: the command starts a server of its own.

    Raises
    ------
    UsageError
        If a command that needs a running server gets ``none``.
    """
    if "hub" not in args:  # the command needs no server
        return
    if args.server == NONE:
        if not args.stop_server:
            raise UsageError(f"--server {NONE} is for commands that can start a server; name one: URL, profile or auto")
        if getattr(args, "session", None):
            raise UsageError(f"--server {NONE} starts a new server, which has no session yet; leave one of them out")
        args.server = None
        return
    is_elsewhere = args.hub is not None or args.binder is not None or args.docker is not None
    if not is_elsewhere and args.server in (None, AUTO):
        args.server = server_of_environment() or args.server
        args.is_server_chosen = True


def named_server(args: argparse.Namespace) -> JupyterConnectionInfo:
    """Return the server that ``--server`` names: by its URL, by a profile, or ``auto``.

    Raises
    ------
    ConnectionFailed
        If it is ``auto``, and none of this user's servers answers ``exec/v1``.
    UsageError
        If there is no such profile, or a file cannot be read.
    ValueError
        If it is no URL.
    """
    token = _token(args.token_file)
    verify = args.ca_bundle or True
    try:
        info = newest_with_api(token, verify=verify) if args.server == AUTO else _connection_to(args.server, token)
    except ConnectionFailed as error:
        raise ConnectionFailed(f"{error.message}; here, name it with --server URL or a profile") from error
    except ValueError as error:
        if _is_profile_error(error):
            raise UsageError(str(error)) from error
        raise
    info = replace(info, token=token or info.token or token_of_environment())
    return replace(info, verify=verify) if args.ca_bundle else info


def _is_profile_error(error: ValueError) -> bool:
    """Return whether a profile or its file cannot be used."""
    from ..client.server_profiles import ProfileError  # few commands use a profile

    return isinstance(error, ProfileError)


def _connection_to(server: str, token: str | None) -> JupyterConnectionInfo:
    """Return the connection info of a URL or a profile, with a note if others can read the profile's token file."""
    from ..client.server_profiles import find_profile, is_profile_name

    info = connection_to_named(server, token)
    if token is None and is_profile_name(server) and (token_file := find_profile(server).token_file) is not None:
        note_if_others_can_read(token_file)
    return info


def _token(path: str | None) -> str | None:
    return read_token_file(path) if path else None


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that sessions on a server are closed."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with contextlib.ExitStack() as undo:
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                undo.callback(signal.signal, number, signal.signal(number, leave))
        yield


@contextmanager
def client_for(args: argparse.Namespace) -> Iterator[ExecClient]:
    """Yield a client of the server that the options name, or of one that ends with the context."""
    # Outermost, so that a server that is still starting is ended by a signal as well.
    with leaving_in_order(), contextlib.ExitStack() as stack:
        server = _server_for(args, stack)
        client = stack.enter_context(ExecClient(server))
        if args.hub is not None or args.server is not None:
            args.server_url = client.connection_info.url  # errors name it
        if getattr(args, "session", None) and not is_whole_id(args.session):
            args.session = find_session(client, args.session).id
        yield client
        if args.leaves_hub_token_valid and isinstance(server, JupyterHubServer):
            server.keep_token()


def _server_for(args: argparse.Namespace, stack: contextlib.ExitStack) -> JupyterConnectionInfo | JupyterConnectable:
    """Return the server; one that is started here ends with the stack."""
    if args.hub is not None:
        return stack.enter_context(_at_hub(args))
    if args.binder is not None:
        return stack.enter_context(_binder(args))
    if args.server is not None:
        info = named_server(args)
        args.server_url = info.url
        if getattr(args, "is_server_chosen", False):
            print_message(f"using {info.url}")
        return info
    if sys.stderr.isatty():
        print(f"Starting a {'gateway' if args.docker is None else 'container'} ...", file=sys.stderr)
    if args.docker is not None:
        return stack.enter_context(_container(args.docker))
    # Entered before the server, so that it is removed after the server has stopped writing to it.
    logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    # Without a pool: a second kernel would start during the run and delay the end by 0.2 s (2026-11-27).
    return stack.enter_context(LocalJupyterServer(log_file=str(logs / "gateway.log"), pool_size=0))


def _at_hub(args: argparse.Namespace) -> JupyterHubServer:
    token = _token(args.token_file) or JupyterConnectionInfo.from_url(args.hub).token
    return JupyterHubServer(
        args.hub,
        token or os.environ.get("JUPYTER_TOKEN", "").strip() or None,
        user=args.hub_user,
        server_name=args.hub_server or "",
        stop=args.stop_server,
        on_progress=show_phases if sys.stderr.isatty() else None,
        verify=args.ca_bundle or True,
    )


def _binder(args: argparse.Namespace) -> BinderServer:
    """Return the launch of a Binder. JUPYTER_TOKEN belongs to a Jupyter server, so a BinderHub does not get it."""
    return BinderServer(
        args.binder,
        binder_url=args.binder_url or BINDER_URL,
        binder_token=_token(args.token_file),
        verify=args.ca_bundle or True,
    )


def _container(image: str) -> DockerJupyterServer:
    """Start a server in a container; an empty name stands for this package's own image."""
    try:
        return DockerJupyterServer(custom_image_name=image or None)
    except ImportError as error:
        raise UsageError(str(error)) from error


@contextmanager
def api_client_for(args: argparse.Namespace) -> Iterator[ExecClient]:
    """Yield a client as `client_for` does, of a server that has ``exec/v1``."""
    with client_for(args) as client:
        client.info()  # a clear error for a server without exec/v1
        yield client
