"""Choice of a kernelspec for ``jupyter exec run``, by the code's language or the notebook's own kernelspec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..client.sync.client import ExecClient
from ..errors import LanguageNotSupported
from ..models import KernelSpecInfo
from ..protocol.languages import normalize_language, source_for_kernel
from ..protocol.records_json import kernelspec_from_json
from .code_source import CodeSource
from .messages import UsageError, print_message
from .terminal_text import printable


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """Kernelspec for a run.

    Parameters
    ----------
    name : str or None
        Its name; None for the server's default.
    language : str
        Its language; empty if that is not known.
    """

    name: str | None
    language: str = ""


def can_run(language: str, kernel_language: str) -> bool:
    """Return whether a kernel of one language runs code of another; a Python kernel runs bash and sh as well."""
    try:
        source_for_kernel("", language, kernel_language)
    except LanguageNotSupported:
        return False
    return True


def choose_kernel(client: ExecClient, source: CodeSource, named: str | None) -> ChosenKernel:
    """Choose an installed kernelspec that runs the code.

    Parameters
    ----------
    client : ExecClient
        A client of the server.
    source : CodeSource
        The code.
    named : str or None
        The kernelspec of ``--kernel``.

    Raises
    ------
    UsageError
        If no kernelspec of the server, or not the named one, runs the code's language.
    ApiNotFound
        If the server has no ``exec/v1``.
    """
    wanted = source.notebook.kernel_name if source.notebook is not None else None
    if (source.language is None and wanted is None) or (source.notebook is not None and named is not None):
        return ChosenKernel(named)
    info = client.info()
    specs = [kernelspec_from_json(spec) for spec in info["kernelspecs"]]
    by_name = {spec.name: spec for spec in specs}
    default = by_name.get(info["default_kernel_name"])
    if named is not None:
        spec = by_name.get(named)
        if spec is not None and source.language is not None and not can_run(source.language, spec.language):
            raise UsageError(_refusal(source.language, specs, f"the kernel {named!r} runs {spec.language}"))
        return ChosenKernel(named, spec.language if spec is not None else "")  # the server refuses an unknown one
    if wanted is not None and wanted in by_name:
        return ChosenKernel(wanted, by_name[wanted].language)
    chosen = _first_that_runs(source.language, default, specs)
    if chosen is None:
        if source.language is None:  # the server has no default kernelspec either, and refuses with its own message
            return ChosenKernel(None)
        raise UsageError(_refusal(source.language, specs, "no kernel of the server runs it"))
    if wanted is not None:
        print_kernel_fallback(wanted, printable(chosen.name))
    return ChosenKernel(None if chosen is default else chosen.name, chosen.language)


def print_kernel_fallback(wanted: str, used: str) -> None:
    """Print that a notebook's kernelspec is not installed, and the kernel that is used instead."""
    print_message(
        f"the notebook's kernel {printable(wanted)} is not installed there, so it runs in {used}; choose "
        "another one with --kernel"
    )


def _first_that_runs(
    language: str | None, default: KernelSpecInfo | None, specs: Sequence[KernelSpecInfo]
) -> KernelSpecInfo | None:
    """Return the default kernelspec if it runs the language, else the first one, those of the same language first."""
    if language is None:
        return default
    own = [spec for spec in specs if normalize_language(spec.language) == normalize_language(language)]
    candidates = [*([default] if default is not None else []), *own, *specs]
    return next((spec for spec in candidates if can_run(language, spec.language)), None)


def _refusal(language: str, specs: Sequence[KernelSpecInfo], why: str) -> str:
    installed = ", ".join(f"{printable(spec.name)} ({printable(spec.language or 'unknown')})" for spec in specs)
    return (
        f"the code is {language}, and {why}; installed there: {installed or 'no kernel'}; install a kernel for "
        f"{language}, or choose one with --kernel"
    )
