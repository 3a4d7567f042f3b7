"""The command line's grammar; what the commands do is in a module each."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..audit.digest_chain import Head
from ..errors import ExecError, Unauthenticated
from . import audit_command, doctor_command, file_command, output_command, run_command, serve_command, session_command
from .common_options import add_command as _add
from .common_options import isolation_option as _isolation_option
from .common_options import seconds as _seconds
from .common_options import server_options as _server_options
from .escape_filter import protected_terminal
from .kernelspecs.kernelspec_command import add_kernelspec
from .migration import migrate_command
from .server_choice import UsageError, check_server_options
from .token_grammar import add_approve, add_token

EXIT_SERVER_FAILED = 3
_EXIT_USAGE, _EXIT_BROKEN_PIPE = 2, 141

_DESCRIPTION = """\
Run code in Jupyter kernels: on a server, or on one that lives for a moment.

  jupyter exec run script.py                       on a kernel of its own, gone afterwards
  jupyter exec run script.py --docker              on one in a container
  jupyter exec run -c 'print(1)' --server URL      on a server; the token is read from JUPYTER_TOKEN
  jupyter exec run -c 'print(1)' --hub URL         on your server at a JupyterHub, started if need be
  jupyter exec run -c 'print(1)' --binder SPEC     on a server made from a repository, such as gh/org/repo/HEAD
  jupyter exec session start --server URL          a session that keeps its variables
  jupyter exec run -c 'x = 1' --session ID         ... and code that runs in it
  jupyter exec file upload ID data.csv             files into a session's directory, and out of it
  jupyter exec output download ID stdout           what code printed beyond the cap
  jupyter exec token create claude --expires 8h    a token for an agent, which may do less than yours
  jupyter exec approve watch                       let agents' code run, or not, as it comes
  jupyter exec kernelspec install --sandbox        kernels that see their work and nothing else, in JupyterLab, too
  jupyter exec serve --gateway                     a Kernel Gateway that serves exec/v1
  jupyter exec audit verify                        is the audit trail on this machine whole?
  jupyter exec migrate DIR                         the imports of a project that used AutoGen's executors
  jupyter exec doctor                              is everything in place?
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="jupyter exec", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_session(commands)
    _add_file(commands)
    _add_output(commands)
    add_token(commands)
    add_approve(commands)
    add_kernelspec(commands)
    _add_serve(commands)
    _add_audit(commands)
    _add_migrate(commands)
    _add_doctor(commands)
    return parser


def _add_run(commands: Any) -> None:
    parser = _add(commands, "run", "run code and show its output as it comes", run_command.run)
    source = parser.add_mutually_exclusive_group()  # one of them: `run.run` says so, and why FILE may be missing
    source.add_argument("file", nargs="?", metavar="FILE", help="the code; - for standard input")
    source.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    parser.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    _isolation_option(parser)
    parser.add_argument("--session", metavar="ID", help="run in this session and keep it (default: a new one)")
    parser.add_argument("--language", metavar="NAME", help="language of the code, such as bash (default: the kernel's)")
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="stop the code after this run time")
    parser.add_argument(
        "--output-dir", metavar="DIR", default=".", help="where displayed images and HTML pages are saved (default: .)"
    )
    _server_options(parser, None, "a gateway that is started for this and stopped again")
    parser.epilog = (
        "Exit code: 0 if the code ran to its end; what it passed to sys.exit(); 1 for another error; 124 if its time "
        "was up; 126 if a person rejected it; 130 if it was interrupted; 128+N if signal N ended its kernel; 3 if the "
        "server failed, or the token ended."
    )


def _add_session(commands: Any) -> None:
    parser = commands.add_parser(
        "session", help="start, list and end sessions on a server", description="Sessions keep variables between runs."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = _add(actions, "list", "list your sessions", session_command.list_)
    listing.add_argument("--ended", action="store_true", help="those that have ended, too")
    start = _add(actions, "start", "start a session and print its id", session_command.start)
    kernel = start.add_mutually_exclusive_group()
    kernel.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    kernel.add_argument("--attach", metavar="KERNEL_ID", help="share this running kernel, such as a notebook's")
    _isolation_option(start)
    start.add_argument("--name", default="", metavar="TEXT", help="a name for people")
    start.add_argument("--idle-timeout", type=float, metavar="SECONDS", help="end it when idle this long; 0 for never")
    stop = _add(actions, "stop", "shut sessions down", session_command.stop)
    interrupt = _add(
        actions, "interrupt", "interrupt what runs in sessions, as Ctrl-C would", session_command.interrupt
    )
    for action in (stop, interrupt):
        action.add_argument("ids", nargs="+", metavar="ID")
    for action in (listing, start, stop, interrupt):
        _server_options(action, "auto", "auto")


def _add_file(commands: Any) -> None:
    parser = commands.add_parser(
        "file", help="list, upload, download and delete the files of a session", description="The files of a session."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = _add(actions, "list", "list files with size and time", file_command.list_)
    upload = _add(actions, "upload", "upload a file", file_command.upload)
    download = _add(actions, "download", "download a file, also after the session has ended", file_command.download)
    delete = _add(actions, "delete", "delete files", file_command.delete)
    for action in (listing, upload, download, delete):
        action.add_argument("session", metavar="ID", help="the session")
        _server_options(action, "auto", "auto")
    listing.add_argument("--path", default="", metavar="DIR", help="only below this directory")
    listing.add_argument("--sha256", action="store_true", help="hash them all on the server")
    upload.add_argument("file", metavar="FILE")
    upload.add_argument("remote", nargs="?", metavar="PATH", help="where to, in the session (default: its name)")
    download.add_argument("remote", metavar="PATH", help="the file in the session")
    download.add_argument("local", nargs="?", default=".", metavar="FILE|DIR", help="where to (default: .)")
    delete.add_argument("paths", nargs="+", metavar="PATH")


def _add_output(commands: Any) -> None:
    parser = commands.add_parser(
        "output",
        help="list and download what an execution printed and showed beyond its cap",
        description="What an execution printed and showed beyond its cap.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = _add(actions, "list", "list outputs with size and type", output_command.list_)
    download = _add(
        actions, "download", "download an output, also after the session has ended", output_command.download
    )
    for action in (listing, download):
        action.add_argument("execution", metavar="ID", help="the execution")
        _server_options(action, "auto", "auto")
    download.add_argument("name", metavar="NAME", help="the output, such as stdout")
    download.add_argument("local", nargs="?", default=".", metavar="FILE|DIR", help="where to (default: .)")


def _add_serve(commands: Any) -> None:
    parser = _add(commands, "serve", "serve exec/v1 from a Jupyter Server or a Kernel Gateway", serve_command.serve)
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


def _head(text: str) -> Head:
    return Head.parse(text)


_head.__name__ = "head (SEQ:DIGEST)"


def _add_audit(commands: Any) -> None:
    parser = commands.add_parser(
        "audit", help="check and show the audit trail", description="The audit trail of the servers on this machine."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    verify = _add(actions, "verify", "check that no record was removed, changed or reordered", audit_command.check)
    tail = _add(actions, "tail", "show the newest records", audit_command.tail)
    for action in (verify, tail):
        action.add_argument("--store", metavar="DIR", help="the directory of ExecStore.path (default: the usual one)")
    verify.add_argument("--head", type=_head, metavar="SEQ:DIGEST", help="a head that an earlier check printed")
    verify.epilog = "Exit code: 0 if the trail is whole, 1 if not. Keep the head that is printed on another machine."
    tail.add_argument("-n", type=int, default=20, dest="count", metavar="N", help="how many records (default: 20)")
    tail.add_argument("--follow", action="store_true", help="and those to come, until Ctrl-C")
    tail.add_argument("--json", action="store_true", help="the whole records, as JSON")


def _add_migrate(commands: Any) -> None:
    parser = _add(
        commands,
        "migrate",
        "move a project's imports from AutoGen's executors to this package",
        migrate_command.migrate,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Python files, notebooks, or directories with them")
    parser.add_argument("--write", action="store_true", help="make the changes (default: print them)")
    parser.epilog = (
        "Names that this package does not have stay where they are, and what could not be moved is said. Exit code: 0, "
        "or 1 if a file could not be read or written and was left alone."
    )


def _add_doctor(commands: Any) -> None:
    parser = _add(
        commands, "doctor", "check the installation, and say what to do about what is wrong", doctor_command.doctor
    )
    _server_options(parser, None, "only this machine is checked")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _print_anything()
    args = build_parser().parse_args(argv)
    with protected_terminal():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        check_server_options(args)
        return int(args.action(args))
    except UsageError as error:
        print(f"jupyter exec: {error}", file=sys.stderr)
        return _EXIT_USAGE
    except ExecError as error:
        # A token that has ended was passed.
        hint = "; pass --token-file or set JUPYTER_TOKEN" if type(error) is Unauthenticated else ""
        print(f"jupyter exec: {error.message}{hint}", file=sys.stderr)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its end
        return _EXIT_BROKEN_PIPE
    except (OSError, ValueError) as error:
        print(f"jupyter exec: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return EXIT_SERVER_FAILED


def _print_anything() -> None:
    """Print a replacement for what the terminal's encoding cannot show, rather than end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
