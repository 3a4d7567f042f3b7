"""Messages of the commands on standard error: their prefix, their colour, and the remedy of an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..errors import ExecError, MissingScope, OwnerOnly, TokenExpired, TokenRevoked, Unauthenticated

_PREFIX = "jupyter exec:"
_RED, _RESET = "\x1b[31m", "\x1b[0m"
_OTHER_TOKEN = (
    "pass --token-file or set JUPYTER_TOKEN, or use a profile that has a token file ('jupyter exec profile add')"
)


class UsageError(Exception):
    """An argument of the command cannot be used; exit code 2."""


def print_message(message: str) -> None:
    """Print a note to standard error."""
    print(f"{_PREFIX} {message}", file=sys.stderr, flush=True)


def print_error(message: str) -> None:
    """Print an error to standard error; on a terminal its prefix is red, unless ``NO_COLOR`` is set."""
    prefix = f"{_RED}{_PREFIX}{_RESET}" if _has_colours() else _PREFIX
    print(f"{prefix} {message}", file=sys.stderr, flush=True)


def _has_colours() -> bool:
    # See https://no-color.org: any value but an empty one switches colours off.
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def error_text(error: Exception) -> str:
    """Return the cause of an error in words: without numbers of the operating system and names of codecs."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    # An error of this package may have a text of its own, without numbers.
    if isinstance(error, OSError) and error.strerror and type(error).__str__ is OSError.__str__:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def unreadable_text(path: str | Path, error: OSError | UnicodeDecodeError) -> str:
    """Return the message for a file that cannot be read: its name, the cause and the remedy."""
    cause = error_text(error) if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
    match error:
        case FileNotFoundError():
            remedy = "check the name, and the directory that you are in"
        case IsADirectoryError():
            remedy = "name a file in it"
        case UnicodeDecodeError():
            remedy = "save it as UTF-8, or name another file"
        case _:
            remedy = "allow yourself to read it, or name another file"
    return f"{path} cannot be read ({cause}); {remedy}"


def describe_error(error: ExecError, server_url: str | None) -> str:
    """Return an error's message with its remedy and with the server.

    Parameters
    ----------
    error : ExecError
        The error.
    server_url : str or None
        The server that was used; None for one that the command has started.
    """
    message = error.message + _remedy(error)
    is_named = server_url is None or server_url.rstrip("/") in message
    return message if is_named else f"{message} (server {server_url})"


def _remedy(error: ExecError) -> str:
    """Return what to do about a token; the message says what is wrong with it."""
    # Other errors of this family have their remedy in the message.
    if type(error) is Unauthenticated:
        return f"; {_OTHER_TOKEN}"
    if isinstance(error, (TokenExpired, TokenRevoked)):
        return "; pass it with --token-file or JUPYTER_TOKEN"
    if isinstance(error, MissingScope):
        return (
            "; use a token that has this scope, which the server's owner creates: jupyter exec token create NAME "
            "--scope SCOPES"
        )
    if isinstance(error, OwnerOnly):
        return f"; use the server's own token: {_OTHER_TOKEN}"
    return ""
