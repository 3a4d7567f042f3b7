"""Forkable kernelspec commands, and the program that a fork parent runs for them. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

_LAUNCHERS = ("ipykernel_launcher", "ipykernel")
_FILE_OPTIONS = ("-f", "--f", "--connection-file", "--IPKernelApp.connection_file")
# Options of the interpreter whose value is an argument of its own.
_OPTIONS_WITH_VALUE = ("-X", "-W")

# Variables that decide how an interpreter starts, and what modules do when they are imported. Kernels that differ in
# one of these have different parents, so that each has imported everything in the environment that it has itself.
_SHAPING = (
    *("PYTHON*", "LD_*", "DYLD_*", "LANG", "LANGUAGE", "LC_*", "TZ", "HOME", "XDG_*", "TMPDIR", "VIRTUAL_ENV"),
    *("CONDA_*", "IPYTHONDIR", "MPL*", "OMP_*", "OPENBLAS_*", "GOTO_*", "MKL_*", "NUMEXPR_*", "BLIS_*", "VECLIB_*"),
    *("PYDEVD_*", "DEBUGPY_*", "CUDA_*", "NVIDIA_*", "FORCE_COLOR", "NO_COLOR"),
)
# Variables that most programs need.
_NEEDED = ("PATH", "USER", "LOGNAME")


class NotForkableError(Exception):
    """A kernel cannot be forked; the message says why."""


@dataclass(frozen=True, slots=True)
class KernelCommand:
    """The parts of a command that starts an IPython kernel.

    Parameters
    ----------
    python : str
        The interpreter.
    options : tuple of str
        Its own.
    arguments : tuple of str
        The kernel's, but for the connection file.
    """

    python: str
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    connection_file: str


def parsed(command: Sequence[str]) -> KernelCommand:
    """Take a command apart.

    Raises
    ------
    NotForkableError
        If it is not that of an IPython kernel.
    """
    python, *rest = command or [""]
    options: list[str] = []
    remaining = iter(rest)
    for argument in remaining:
        if argument == "-m":
            break
        # A script, code or standard input: it may start a kernel, but nothing shows that.
        if not argument.startswith("-") or argument in ("-c", "-"):
            raise _not_ipython(command)
        options.append(argument)
        if argument in _OPTIONS_WITH_VALUE:
            options.append(next(remaining, ""))
    if next(remaining, "") not in _LAUNCHERS:
        raise _not_ipython(command)
    arguments, connection_file = _without_connection_file(remaining)
    if not connection_file:
        raise _not_ipython(command)
    return KernelCommand(python, tuple(options), tuple(arguments), connection_file)


def _without_connection_file(arguments: Iterator[str]) -> tuple[list[str], str]:
    kept, file = [], ""
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if name not in _FILE_OPTIONS:
            kept.append(argument)
        else:
            file = value if has_value else next(arguments, "")
    return kept, file


def _not_ipython(command: Sequence[str]) -> NotForkableError:
    return NotForkableError(
        f"only 'python -m ipykernel_launcher -f {{connection_file}}' can be forked, and this is {' '.join(command)!r}"
    )


@dataclass(frozen=True, slots=True)
class Program:
    """Program that a fork parent runs. Kernels with equal programs come from the same parent.

    Parameters
    ----------
    preload : tuple of str
        Modules that it imports beside the kernel's own.
    environment : tuple of (str, str)
        Its whole environment, sorted.
    """

    python: str
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    preload: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


def program_of(command: KernelCommand, preload: Sequence[str], env: Mapping[str, str]) -> Program:
    """Return the program from which a kernel with this command and environment can be forked."""
    shaping = ((name, value) for name, value in env.items() if _is_shaping(name))
    return Program(command.python, command.options, command.arguments, tuple(preload), tuple(sorted(shaping)))


def _is_shaping(name: str) -> bool:
    return name in _NEEDED or any(fnmatchcase(name, pattern) for pattern in _SHAPING)
