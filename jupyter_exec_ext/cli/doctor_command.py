"""``jupyter exec doctor``: checks the installation or a server, and prints remedies."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

from .common_options import add_command
from .server_choice import add_server_options

_DISTRIBUTION = "jupyter-exec-ext"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Parameters
    ----------
    what : str
        The result, in words.
    remedy : str
        The remedy or the consequence; empty for a good result.
    fails : bool
        False for a note: a result with a consequence that is no failure.
    """

    what: str
    remedy: str = ""
    fails: bool = True

    @property
    def mark(self) -> str:
        """``ok``, ``note`` or ``FAIL``."""
        if not self.remedy:
            return "ok"
        return "FAIL" if self.fails else "note"


def add_doctor_command(commands: Any) -> None:
    """Add ``jupyter exec doctor``."""
    parser = add_command(commands, "doctor", "check the installation, and say what to do about what is wrong", doctor)
    add_server_options(parser, None, "only this machine is checked")


def doctor(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if any check has failed."""
    at_server = any(where is not None for where in (args.server, args.hub, args.binder, args.docker))
    # A missing package is reported before the other checks import it.
    is_healthy = True if at_server else _print_findings(_check_packages())
    # Imported now: other commands must not wait for Jupyter Server and jupyter_client.
    from .doctor_checks import check_installation, check_server

    return 0 if _print_findings(check_server(args) if at_server else check_installation()) and is_healthy else 1


def _print_findings(findings: Iterable[Finding]) -> bool:
    """Print findings as they come; return whether no check has failed."""
    is_healthy = True
    for finding in findings:
        is_healthy = is_healthy and finding.mark != "FAIL"
        print(f"{finding.mark:4}  {finding.what}", flush=True)
        if finding.remedy:
            print(f"      -> {finding.remedy}", flush=True)
    return is_healthy


def _check_packages() -> Iterator[Finding]:
    """Compare installed packages with the requirements of this one."""
    yield Finding(f"Python {sys.version.split()[0]}, {_DISTRIBUTION} {version(_DISTRIBUTION)}")
    for line in requires(_DISTRIBUTION) or []:
        requirement = Requirement(line)
        # Extras are optional, and other markers name other platforms or versions of Python.
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield Finding(f"{requirement.name} is not installed", f"pip install '{requirement}'")
            continue
        # By default a specifier excludes all pre-releases, also those that are newer than it requires.
        fits = requirement.specifier.contains(found, prereleases=True)
        remedy = "" if fits else f"pip install '{requirement}'"
        yield Finding(f"{requirement.name} {found}{'' if fits else f', but {requirement.specifier} is needed'}", remedy)
