"""Entry point of ``jupyter exec``: the parser of all commands, and the exit code of errors."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import __version__
from ..errors import ExecError
from .approve_command import add_approve_command
from .audit_command import add_audit_command
from .command_examples import add_examples
from .command_parser import CommandParser, set_help_action
from .completion_command import add_completion_command
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

_DESCRIPTION = "Run code in Jupyter kernels: on a server, or on one that is started for the command."
_EPILOG = """\
'jupyter exec COMMAND --help' explains a command and has examples. For a start:

  jupyter exec run script.py                  on a kernel of its own
  jupyter exec run -c 'print(1)' --server URL on a server, with JUPYTER_TOKEN
  jupyter exec session start --name analysis  a session that keeps variables
  jupyter exec run -c 'x = 1' --session ID    and code that runs in it
  jupyter exec token create claude            a token for an agent
  jupyter exec doctor                         checks of the installation
"""
# By the heading that they have in the help.
_COMMANDS: dict[str, tuple[Callable[[Any], None], ...]] = {
    "daily": (add_run_command, add_session_command, add_file_command, add_output_command),
    "access": (add_token_command, add_approve_command, add_profile_command),
    "administration": (
        *(add_serve_command, add_doctor_command, add_kernelspec_command),
        *(add_audit_command, add_migrate_command, add_completion_command),
    ),
}


def build_parser() -> CommandParser:
    """Return the parser with all commands."""
    parser = CommandParser(prog="jupyter exec", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=__version__)
    set_help_action(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for heading, adders in _COMMANDS.items():
        known = set(commands.choices)
        for add in adders:
            add(commands)
        parser.command_groups[heading] = [name for name in commands.choices if name not in known]
    add_examples(parser)
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
