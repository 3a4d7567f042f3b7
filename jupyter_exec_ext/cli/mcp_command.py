"""``jupyter exec mcp``: the Model Context Protocol (MCP) at standard input and output, and clients' configurations."""

from __future__ import annotations

import argparse
import os
import shutil
import sysconfig
from typing import Any

from ..client.durations import duration
from .common_options import add_command
from .mcp_client_config import ALIASES, CLIENTS, DEFAULT_TIMEOUT_SECONDS, McpProgram, McpUrl, seconds_text
from .messages import UsageError, print_message

_PROGRAM = "jupyter-exec"
_CONFIG_DIRECTORY = "JUPYTER_CONFIG_DIR"
# The variables on which the directory of the servers' files depends; the first one is that directory.
_MOVE_RUNTIME_DIRECTORY = ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME")


def add_mcp_command(commands: Any) -> None:
    """Add ``jupyter exec mcp``."""
    parser = add_command(
        commands, "mcp", "let a client of the Model Context Protocol (MCP) run code on a server", run_mcp_command
    )
    parser.add_argument(
        "--server",
        metavar="URL|NAME|auto",
        help="the Jupyter server: its URL, a profile, or 'auto' for the newest of your servers on this machine "
        "(default: JUPYTER_EXEC_SERVER, else auto)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file that holds the server's token; without it the token in the URL, then JUPYTER_TOKEN, is used",
    )
    parser.add_argument("--ca-bundle", metavar="FILE", help="certificates to check an https server with")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    where.add_argument("--session", metavar="ID", help="run in this session and keep it (default: a new one)")
    parser.add_argument(
        "--timeout",
        type=duration,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="TIME",
        help="stop code after this run time (default: %(default)g s)",
    )
    parser.add_argument(
        "--print-config",
        type=lambda name: ALIASES.get(name, name),
        choices=CLIENTS,
        metavar="CLIENT",
        help="print the configuration with which a client connects to the server's endpoint exec/mcp, and exit: "
        f"{', '.join(CLIENTS)}",
    )
    parser.add_argument(
        "--stdio",
        action="store_true",
        help="with --print-config: the configuration with which the client starts this command instead",
    )


def run_mcp_command(args: argparse.Namespace) -> int:
    """Serve a client, or print its configuration."""
    args.server = _server_of(args.server)
    if args.print_config is None:
        if args.stdio:
            raise UsageError("--stdio goes with --print-config CLIENT")
        return serve_client(args)
    client = CLIENTS[args.print_config]
    if args.stdio:
        print(client.for_program(program_of(args)))
        return 0
    endpoint = endpoint_of(args)
    print(client.for_url(endpoint))
    if next_step := client.next_step(endpoint):
        print_message(next_step)
    return 0


def _server_of(named: str | None) -> str:
    """Return the server of the option or, if that leaves it open, of the environment."""
    from ..client.local_servers import AUTO, NONE, server_of_environment

    if named == NONE:
        raise UsageError(f"--server {NONE} is for commands that can start a server; name one: URL, profile or auto")
    return server_of_environment() or AUTO if named in (None, AUTO) else str(named)


def serve_client(args: argparse.Namespace) -> int:
    """Serve the client at standard input and output until it disconnects."""
    try:
        # An optional dependency; other commands must not need it.
        from ..adapters.mcp import serve_at_standard_streams
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError(
            "the Python package mcp is not installed; install it with: pip install 'jupyter-exec-ext[mcp]'"
        ) from error
    from .server_choice import named_server  # loads the client, which help and configurations do not need

    serve_at_standard_streams(
        named_server(args), kernel_name=args.kernel, session_id=args.session, timeout_seconds=args.timeout
    )
    return 0


def endpoint_of(args: argparse.Namespace) -> McpUrl:
    """Return the server's endpoint, and the file that holds the token.

    Raises
    ------
    UsageError
        If the client could not connect so.
    """
    from ..client.local_servers import AUTO, newest_with_api
    from ..client.server_connection import JupyterConnectionInfo
    from ..client.server_profiles import find_profile, is_profile_name

    ca_bundle, token_file = args.ca_bundle, args.token_file
    try:
        if args.server == AUTO:
            url = newest_with_api().url
        elif is_profile_name(args.server):
            profile = find_profile(args.server)
            url = JupyterConnectionInfo.from_url(profile.server).url
            ca_bundle, token_file = ca_bundle or profile.ca_bundle, token_file or profile.token_file
        else:
            _check_no_token(args.server)
            url = JupyterConnectionInfo.from_url(args.server).url
    except ValueError as error:
        raise UsageError(str(error)) from error
    without_effect = {
        "--kernel": args.kernel is not None,
        "--session": args.session is not None,
        "--timeout": args.timeout != DEFAULT_TIMEOUT_SECONDS,
        "--ca-bundle": ca_bundle is not None,
    }
    if any(without_effect.values()):
        names = ", ".join(name for name, is_given in without_effect.items() if is_given)
        raise UsageError(f"a client that connects to {url}exec/mcp by itself cannot have {names}; add --stdio")
    if token_file is not None:
        token_file = os.path.abspath(os.path.expanduser(token_file))
        _check_file("--token-file" if args.token_file else f"token_file of the profile {args.server!r}", token_file)
    return McpUrl(f"{url}exec/mcp", token_file)


def program_of(args: argparse.Namespace) -> McpProgram:
    """Return this command with its options, as a client starts it: with absolute paths, from any directory.

    Raises
    ------
    UsageError
        If a client could not start it so, or if the configuration would hold the token or lead to none.
    """
    words = ["mcp", "--server", args.server]
    env = _check_server(args)
    for option in ("--token-file", "--ca-bundle"):
        if file := getattr(args, option[2:].replace("-", "_")):
            path = os.path.abspath(os.path.expanduser(file))
            _check_file(option, path)
            words += [option, path]
    # In one word, since the value may begin with a hyphen.
    words += [
        f"{option}={value}"
        for option, value in (("--kernel", args.kernel), ("--session", args.session))
        if value is not None
    ]
    if args.timeout != DEFAULT_TIMEOUT_SECONDS:
        words += ["--timeout", seconds_text(args.timeout)]
    return McpProgram(_path_of_program(), words, args.timeout, env)


def _check_file(where: str, path: str) -> None:
    if not (os.path.isfile(path) and os.access(path, os.R_OK)):
        raise UsageError(f"{where}: there is no file {path} that you can read; create it first")


def _check_server(args: argparse.Namespace) -> dict[str, str]:
    """Check that the client's program will find the server and a token; return the environment that it needs for that.

    Clients start programs with a few variables of the environment, so ``JUPYTER_TOKEN`` may be missing there.
    """
    from ..client.local_servers import AUTO
    from ..client.server_profiles import find_profile, is_profile_name

    if args.server == AUTO:  # the token is in the server's own file
        return _runtime_directory()
    env: dict[str, str] = {}
    token_file = args.token_file
    try:
        if is_profile_name(args.server):
            profile = find_profile(args.server)
            if token_file is None and profile.token_file is not None:
                token_file = profile.token_file
                _check_file(f"token_file of the profile {profile.name!r}", token_file)
            if directory := os.environ.get(_CONFIG_DIRECTORY):
                env[_CONFIG_DIRECTORY] = os.path.abspath(directory)
        else:
            _check_no_token(args.server)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if token_file is None:
        raise UsageError(
            f"the configuration must say where the token of {args.server} is; add --token-file FILE, or name a profile "
            "that has a token file ('jupyter exec profile add')"
        )
    return env


def _check_no_token(url: str) -> None:
    from ..client.server_connection import JupyterConnectionInfo

    if JupyterConnectionInfo.from_url(url).token is not None:
        raise UsageError(
            "the URL holds a token, which would be kept in the configuration; write the token into a file, and "
            "name that with --token-file"
        )


def _runtime_directory() -> dict[str, str]:
    """Return the variable with the directory of the servers' files, if the environment moves that."""
    if not any(os.environ.get(name) for name in _MOVE_RUNTIME_DIRECTORY):
        return {}
    from jupyter_core.paths import jupyter_runtime_dir

    return {_MOVE_RUNTIME_DIRECTORY[0]: os.path.abspath(jupyter_runtime_dir())}


def _path_of_program() -> str:
    """Return the path of ``jupyter-exec`` in this environment, since clients have another search path.

    It is not ``python -m``, which would import modules from the project that the client is working on.
    """
    directories = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))]
    found = shutil.which(_PROGRAM, path=os.pathsep.join(directories))
    if found is None:
        raise UsageError(
            f"the program {_PROGRAM} is in none of {', '.join(directories)}; install the package again in this "
            "environment"
        )
    return found
