"""Entry point of ``jupyter exec``: the parser of all commands, and the exit code of errors."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import ExecError
from .approve_command import add_approve_command
from .audit_command import add_audit_command
from .doctor_command import add_doctor_command
from .kernelspecs.kernelspec_command import add_kernelspec_command
from .messages import UsageError, describe_error, error_text, print_error
from .migrate_command import add_migrate_command
from .profile_command import add_profile_command
from .run_command import add_run_command
from .serve_command import add_serve_command
from .server_choice import apply_environment, check_server_options
from .session_command import add_file_command, add_output_command, add_session_command
from .terminal_text import protected_terminal
from .token_command import add_token_command

EXIT_SERVER_FAILED = 3
# As shells report it: 128 and the number of SIGPIPE (13).
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
    for add in (
        *(add_run_command, add_session_command, add_file_command, add_output_command),
        *(add_token_command, add_approve_command, add_profile_command, add_kernelspec_command),
        *(add_serve_command, add_audit_command, add_migrate_command, add_doctor_command),
    ):
        add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _replace_unprintable()
    args = build_parser().parse_args(argv)
    with protected_terminal():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        apply_environment(args)
        check_server_options(args)
        return int(args.action(args))
    except UsageError as error:
        print_error(str(error))
        return _EXIT_USAGE
    except ExecError as error:
        print_error(describe_error(error, getattr(args, "server_url", None)))
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit fails, too
        return _EXIT_BROKEN_PIPE
    except (OSError, ValueError) as error:
        print_error(error_text(error))
    except KeyboardInterrupt:
        return 130  # 128 and the number of SIGINT (2)
    return EXIT_SERVER_FAILED


def _replace_unprintable() -> None:
    """Replace characters that the terminal's encoding cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
