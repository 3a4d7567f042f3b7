"""Entry point of ``jupyter exec``: the parser of all commands, and the exit code of errors."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from .. import __version__
from ..errors import ExecError
from .command_examples import add_examples
from .command_parser import CommandParser, set_help_action
from .exit_codes import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_SERVER_FAILED, EXIT_USAGE
from .messages import UsageError, describe_error, error_text, print_error
from .terminal_text import protected_terminal

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
# Modules and one-line helps of the commands, by heading. A module is imported when its command is used, so
# that `--help` takes 0.05 s; with all modules it took 0.4 s (2026-11-27).
_COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "daily": {
        "run": ("run_command", "run code and show its output as it comes"),
        "session": ("session_command", "start, list and end sessions on a server"),
        "execution": ("execution_command", "list and search what was run"),
        "file": ("session_command", "list, upload, download and delete the files of a session"),
        "output": ("session_command", "list and download output of an execution beyond the limit"),
        "mcp": ("mcp_command", "let a client of the Model Context Protocol (MCP) run code on a server"),
    },
    "access": {
        "token": ("token_command", "create, list, rotate and revoke tokens for agents"),
        "secret": ("secret_command", "set, list and delete secrets for requests of sessions"),
        "approve": ("approve_command", "decide about code that waits for a person's approval"),
        "profile": ("profile_command", "name servers for --server NAME"),
    },
    "administration": {
        "serve": ("serve_command", "serve exec/v1 from a Jupyter Server or a Kernel Gateway"),
        "drain": ("drain_command", "have a server take no new sessions, before you stop it"),
        "pool": ("pool_command", "serve exec/v1 from many servers of a JupyterHub"),
        "doctor": ("doctor_command", "check the installation, and say what to do about what is wrong"),
        "kernelspec": (
            "kernelspecs.kernelspec_command",
            "list kernelspecs, and install ones whose kernels are isolated or forked",
        ),
        "audit": ("audit_command", "check and show the audit trail"),
        "migrate": ("migrate_command", "move a project's imports from AutoGen's executors to this package"),
        "completion": ("completion_command", "print a script for tab completion in your shell"),
    },
}


def build_parser(only: str | None = None) -> CommandParser:
    """Return the parser of the commands.

    Parameters
    ----------
    only : str, optional
        The command to add with its actions and options; the others get their name and help. By default all are added.
    """
    parser = CommandParser(prog="jupyter exec", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=__version__)
    set_help_action(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for heading, group in _COMMANDS.items():
        for name, (module, help_) in group.items():
            if only in (None, name):
                add = getattr(import_module(f".{module}", __package__), f"add_{name}_command")
                add(commands)
            else:
                commands.add_parser(name, help=help_)
        parser.command_groups[heading] = list(group)
    add_examples(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _replace_unprintable()
    words = sys.argv[1:] if argv is None else argv
    command = next((word for word in words if not word.startswith("-")), "")
    args = build_parser(command).parse_args(words)
    with protected_terminal():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        if "hub" in args:
            from .server_choice import apply_environment, check_server_options  # loads the client

            apply_environment(args)
            check_server_options(args)
        return int(args.action(args))
    except UsageError as error:
        print_error(str(error))
        return EXIT_USAGE
    except ExecError as error:
        print_error(describe_error(error, getattr(args, "server_url", None)))
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit fails, too
        return EXIT_BROKEN_PIPE
    except (OSError, ValueError) as error:
        print_error(error_text(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_SERVER_FAILED


def _replace_unprintable() -> None:
    """Replace characters that the terminal's encoding cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
