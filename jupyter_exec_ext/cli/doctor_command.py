"""``jupyter exec doctor``: checks the installation or a server, and prints remedies."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

from .common_options import add_command
from .messages import UsageError
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
    parser.add_argument("-v", "--verbose", action="store_true", help="show what is in place as well")
    parser.add_argument("--json", action="store_true", help="print all results as one JSON object")
    parser.add_argument(
        "--devices", action="store_true", help="check this machine's GPUs for sandboxes, and nothing else"
    )
    add_server_options(parser, None, "only this machine is checked")


def doctor(args: argparse.Namespace) -> int:
    """Print the findings and a summary; return 1 if any check has failed."""
    report = _Report(is_verbose=args.verbose, is_json=args.json)
    at_server = any(where is not None for where in (args.server, args.hub, args.binder, args.docker))
    if args.devices:
        if at_server:
            raise UsageError("--devices is about this machine; leave out the server")
        from .doctor_devices import check_devices

        report.add(check_devices())
        report.print_end()
        return 1 if report.count("FAIL") else 0
    if not at_server:  # a missing package is reported before the other checks import it
        report.add(_check_packages())
    # Imported now: other commands must not wait for Jupyter Server and jupyter_client.
    from .doctor_checks import check_installation, check_server

    report.add(check_server(args) if at_server else check_installation())
    report.print_end()
    return 1 if report.count("FAIL") else 0


class _Report:
    """Printer of findings: as they come and with a summary, or as JSON at the end."""

    def __init__(self, *, is_verbose: bool, is_json: bool) -> None:
        self._is_verbose = is_verbose
        self._is_json = is_json
        self._findings: list[Finding] = []

    def count(self, mark: str) -> int:
        """Return the number of findings with this mark."""
        return sum(finding.mark == mark for finding in self._findings)

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings, and print those that are shown."""
        for finding in findings:
            self._findings.append(finding)
            if self._is_json or (finding.mark == "ok" and not self._is_verbose):
                continue
            print(f"{finding.mark:4}  {finding.what}", flush=True)
            if finding.remedy:
                print(f"      -> {finding.remedy}", flush=True)

    def print_end(self) -> None:
        """Print the summary, or everything as JSON."""
        if not self._is_json:
            print(self._summary())
            return
        findings = [{"mark": one.mark, "what": one.what, "remedy": one.remedy} for one in self._findings]
        print(json.dumps({"summary": self._summary(), "findings": findings}, indent=2))

    def _summary(self) -> str:
        checks = _counted(len(self._findings), "check")
        wrong = [(self.count("FAIL"), "problem"), (self.count("note"), "note")]
        shown = [_counted(count, noun) for count, noun in wrong if count]
        return f"{', '.join(shown)} in {checks}" if shown else f"everything is in place: {checks}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


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
