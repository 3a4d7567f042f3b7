"""``jupyter exec session``, ``file`` and ``output``: sessions on a server, their files, and outputs beyond the cap."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..client.durations import duration_or_never
from ..client.local_files import Progress
from ..models import Session
from ..protocol.records_json import to_json
from .checkpoint_actions import add_checkpoint_actions
from .common_options import add_command, add_command_group, add_isolation_option, add_json_option, print_json
from .listening_port import port_number
from .messages import print_message
from .relative_times import relative_time
from .server_choice import add_server_options, api_client_for, client_for
from .short_ids import find_execution, find_session
from .terminal_text import print_table, printable

_SESSION_HELP = "the session: its id, the start of that, or its name"

_NETWORKS = {
    "none": "none",
    "host": "that of the kernel's machine",
    "rules": "what these rules allow",
}


def add_session_command(commands: Any) -> None:
    """Add ``jupyter exec session``."""
    actions = add_command_group(
        commands, "session", "start, list and end sessions on a server", "Sessions keep variables between runs."
    )
    listing = add_command(actions, "list", "list your sessions", list_sessions)
    listing.add_argument("--ended", action="store_true", help="those that have ended, too")
    start = add_command(actions, "start", "start a session and print its id", start_session)
    kernel = start.add_mutually_exclusive_group()
    kernel.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    kernel.add_argument("--attach", metavar="KERNEL_ID", help="share this running kernel, such as a notebook's")
    add_isolation_option(start)
    start.add_argument("--name", default="", metavar="TEXT", help="a name for people")
    start.add_argument(
        "--idle-timeout",
        type=duration_or_never,
        metavar="TIME",
        help="end it when idle this long, such as 30m; 0 for never (default: the server's)",
    )
    start.add_argument(
        "--auto-checkpoint",
        choices=("off", "each_run"),
        help="make a checkpoint before each run, and keep the newest ones (default: off)",
    )
    stop = add_command(actions, "stop", "shut sessions down", stop_sessions)
    interrupt = add_command(
        actions, "interrupt", "interrupt what runs in sessions, as Ctrl-C would", interrupt_sessions
    )
    port = add_command(
        actions,
        "port",
        "open a port of a session and print its addresses",
        open_port,
    )
    port.add_argument("id", metavar="SESSION", help=_SESSION_HELP)
    port.add_argument("port", type=port_number, metavar="PORT", help="port on which a program of the session listens")
    port.add_argument("--close", action="store_true", help="close it")
    network = add_command(
        actions, "network", "show what the code of a session may reach, and what it has asked for", show_network
    )
    network.add_argument("id", metavar="SESSION", help=_SESSION_HELP)
    network.add_argument(
        "--allow",
        metavar="RULE",
        help="allow one thing more until the session ends, such as 'example.com'; for the server's owner",
    )
    install = add_command(actions, "install", "install packages for a session alone, until it ends", install_packages)
    install.add_argument("id", metavar="SESSION", help=_SESSION_HELP)
    install.add_argument("packages", nargs="+", metavar="PACKAGE", help="requirement, such as pandas or 'pandas==2.2'")
    add_checkpoint_actions(actions, _SESSION_HELP)
    for action in (stop, interrupt):
        action.add_argument("ids", nargs="+", metavar="ID", help=_SESSION_HELP)
    for action in (listing, start, port, network):
        add_json_option(action)
    for action in (listing, start, stop, interrupt, port, network, install):
        add_server_options(action, "auto", "auto", leaves_hub_token_valid=action in (start, port))


def add_file_command(commands: Any) -> None:
    """Add ``jupyter exec file``."""
    actions = add_command_group(
        commands, "file", "list, upload, download and delete the files of a session", "The files of a session."
    )
    listing = add_command(actions, "list", "list files with size and time", list_files)
    upload = add_command(actions, "upload", "upload a file", upload_file)
    download = add_command(actions, "download", "download a file, also after the session has ended", download_file)
    delete = add_command(actions, "delete", "delete files", delete_files)
    for action in (listing, upload, download, delete):
        action.add_argument("session", metavar="ID", help=_SESSION_HELP)
        add_server_options(action, "auto", "auto")
    for action in (listing, upload, download):
        add_json_option(action)
    listing.add_argument("--path", default="", metavar="DIR", help="only below this directory")
    listing.add_argument("--sha256", action="store_true", help="hash them all on the server")
    upload.add_argument("file", metavar="FILE", help="the file on this machine")
    upload.add_argument("remote", nargs="?", metavar="PATH", help="where to, in the session (default: its name)")
    download.add_argument("remote", metavar="PATH", help="the file in the session")
    download.add_argument("local", nargs="?", default=".", metavar="FILE|DIR", help="where to (default: .)")
    delete.add_argument("paths", nargs="+", metavar="PATH", help="the files in the session")


def add_output_command(commands: Any) -> None:
    """Add ``jupyter exec output``."""
    actions = add_command_group(
        commands,
        "output",
        "list and download output of an execution beyond the limit",
        "Output of an execution that exceeded the limit, and is kept by the server.",
    )
    listing = add_command(actions, "list", "list outputs with size and type", list_outputs)
    download = add_command(actions, "download", "download an output, also after the session has ended", download_output)
    for action in (listing, download):
        action.add_argument("execution", metavar="ID", help="the execution, or the start of its id")
        add_json_option(action)
        add_server_options(action, "auto", "auto")
    download.add_argument("name", metavar="NAME", help="the output, such as stdout")
    download.add_argument("local", nargs="?", default=".", metavar="FILE|DIR", help="where to (default: .)")


def list_sessions(args: argparse.Namespace) -> int:
    """Print the sessions, one a line."""
    with api_client_for(args) as client:
        sessions = client.list_sessions(ended=args.ended)
    if args.json:
        print_json({"sessions": [to_json(session) for session in sessions]})
        return 0
    rows = [("ID", "STATE", "KERNEL", "ISOLATION", "LAST ACTIVITY", "NAME")]
    rows += [
        (s.id, s.state.value, _kernel(s), s.isolation, relative_time(s.last_activity_at), s.name) for s in sessions
    ]
    print_table(rows)
    return 0


def _kernel(session: Session) -> str:
    return f"{session.kernel_name} (attached to {session.kernel_id})" if session.attached else session.kernel_name


def start_session(args: argparse.Namespace) -> int:
    """Start a session and print its id, for ``jupyter exec run --session``."""
    with api_client_for(args) as client:
        session = client.session(
            args.kernel,
            name=args.name,
            idle_timeout_seconds=args.idle_timeout,
            kernel_id=args.attach,
            isolation=args.isolation,
            auto_checkpoint=args.auto_checkpoint,
        )
        session.detach()  # it is for later commands
    if args.json:
        print_json(to_json(session.record))
    else:
        print(session.id)
    return 0


def stop_sessions(args: argparse.Namespace) -> int:
    """Shut sessions down."""
    with api_client_for(args) as client:
        for session_id in args.ids:
            find_session(client, session_id).close()  # read first, since deleting an unknown id is no error
    return 0


def interrupt_sessions(args: argparse.Namespace) -> int:
    """Interrupt running code in sessions."""
    with api_client_for(args) as client:
        for session_id in args.ids:
            find_session(client, session_id).interrupt()
    return 0


def open_port(args: argparse.Namespace) -> int:
    """Open or close a port of a session; print the address for programs, and the link for a browser."""
    with api_client_for(args) as client:
        session = find_session(client, args.id)
        if args.close:
            session.close_port(args.port)
            return 0
        opened = session.open_port(args.port)
    if args.json:
        print_json(asdict(opened))
        return 0
    print(f"For programs with a token: {opened.url}")
    if opened.browser_url is not None:
        print(f"For one browser, within 30 s: {opened.browser_url}")
    else:
        print(f"For browsers there is no link: {printable(opened.browser_reason or '')}")
    return 0


def show_network(args: argparse.Namespace) -> int:
    """Print the rules of a session's network and its newest requests; with ``--allow``, add a rule first."""
    with api_client_for(args) as client:
        session = find_session(client, args.id)
        network = session.network() if args.allow is None else session.allow_network(args.allow)
    if args.json:
        print_json(asdict(network))
        return 0
    print(f"Network: {_NETWORKS[network.network]}")
    for rule in network.rules:
        print(f"  {printable(rule)}")
    for rule in network.added_rules:
        print(f"  {printable(rule)} (for this session)")
    for request in network.requests:
        what = f"{request.method} {request.host}:{request.port}{request.path}" if request.host else "unreadable"
        why = f"  ({request.reason})" if request.reason else ""
        used = f"  with {', '.join(request.secrets)}" if request.secrets else ""
        print(printable(f"{request.at}  {request.verdict:8} {what}{used}{why}"))
    return 0


def install_packages(args: argparse.Namespace) -> int:
    """Install packages for a session, and print the installer's messages."""
    with api_client_for(args) as client:
        installed = find_session(client, args.id).install(*args.packages)
    for line in installed.stdout.splitlines():
        print(printable(line))
    return 0


def list_files(args: argparse.Namespace) -> int:
    """Print the files of a session, one a line."""
    with client_for(args) as client:
        files = client.get_session(args.session).list_files(args.path, sha256=args.sha256)
    if args.json:
        print_json({"files": [to_json(file) for file in files], "truncated": files.truncated})
        return 0
    for file in files:
        digest = f"  {file.sha256 or '-':64}" if args.sha256 else ""
        print(f"{file.size_bytes:>14}  {relative_time(file.mtime):>10}{digest}  {printable(file.path)}")
    if files.truncated:
        print("There are more; name a directory with --path.", file=sys.stderr)
    return 0


def upload_file(args: argparse.Namespace) -> int:
    """Upload a file."""
    with client_for(args) as client, progress_bar(args.file) as progress:
        uploaded = client.get_session(args.session).upload(args.file, args.remote, progress=progress)
    if args.json:
        print_json(to_json(uploaded))
    return 0


def download_file(args: argparse.Namespace) -> int:
    """Download a file and print its path."""
    with client_for(args) as client, progress_bar(args.remote) as progress:
        path = client.get_session(args.session).download(args.remote, args.local, progress=progress)
    _print_path(path, as_json=args.json)
    return 0


def _print_path(path: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(path)})
    else:
        print(path)


def delete_files(args: argparse.Namespace) -> int:
    """Delete files."""
    with client_for(args) as client:
        session = client.get_session(args.session)
        for path in args.paths:
            session.delete_file(path)
    return 0


def list_outputs(args: argparse.Namespace) -> int:
    """Print the outputs, one a line, and the reason if some were not kept."""
    with client_for(args) as client:
        record = find_execution(client, args.execution).record
    reason = record.truncated.unspooled_reason if record.truncated is not None else None
    if args.json:
        print_json({"outputs": [to_json(output) for output in record.spooled], "unspooled_reason": reason})
        return 0
    for output in record.spooled:
        note = "" if output.complete else "  (only the beginning)"
        print(f"{output.size_bytes:>14}  {output.name:24}  {printable(output.mime_type)}{note}")
    if reason:
        print_message(f"not everything was kept: {reason}")
    return 0


def download_output(args: argparse.Namespace) -> int:
    """Download an output and print its path."""
    with client_for(args) as client, progress_bar(args.name) as progress:
        path = find_execution(client, args.execution).download_output(args.name, args.local, progress=progress)
    _print_path(path, as_json=args.json)
    return 0


@contextmanager
def progress_bar(name: str) -> Iterator[Progress | None]:
    """Show the progress of a transfer, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm  # loaded only where a bar is shown

    with tqdm(desc=printable(name)[-40:], unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr) as bar:

        def progress(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)  # negative if the transfer starts again after a cut

        yield progress
