"""Record of a full run: results of finished parts in a JSON file, with a page for readers beside it.

A full run takes longer than some machines are at hand. With the record it is run in several sittings, and a part that
has passed is not run again.
"""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


@dataclass
class Result:
    """The result of a part.

    Parameters
    ----------
    problems : list of str
        What does not hold; empty if all does.
    figures : dict
        What was measured.
    seconds : float
        How long it took.
    commit, ended : str
        The checkout it ran on, and when it ended (UTC).
    failed_tests : list of str
        Pytest's ids of the tests that failed, if the part is one of pytest's.
    """

    problems: list[str]
    figures: dict[str, object] = field(default_factory=dict)
    seconds: float = 0.0
    commit: str = ""
    ended: str = ""
    failed_tests: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if all holds."""
        return not self.problems

    def shown_figures(self) -> Mapping[str, object]:
        """Return the figures that say something."""
        return {key: value for key, value in self.figures.items() if value not in ([], "", {})}


def read_record(path: Path) -> dict[str, Result]:
    """Return the results that a record has; none if it does not exist.

    Raises
    ------
    ValueError
        If it is no record of this command.
    """
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return {name: Result(**values) for name, values in content.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no record of a full run ({error}); name another file, or remove it") from error


def write_record(path: Path, results: Mapping[str, Result]) -> None:
    """Write the record, and the page beside it with the suffix ``.md``."""
    content = {name: asdict(result) for name, result in results.items()}
    path.write_text(json.dumps(content, indent=2) + "\n")
    path.with_suffix(".md").write_text(page_of(results))


def page_of(results: Mapping[str, Result]) -> str:
    """Return the page about the results, in Markdown."""
    lines = [
        "# The full run",
        "",
        "Written by `python -m tests.full --record FILE`. [Testing](testing.md) says what the parts are.",
        "",
        "| part | result | minutes | ended (UTC) | commit |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        state = "passed" if result.passed else "**failed**"
        lines.append(f"| {name} | {state} | {result.seconds / 60:.0f} | {result.ended} | {result.commit} |")
    for name, result in results.items():
        said = [f"- does not hold: {problem}" for problem in result.problems]
        said += [f"- {key}: {value}" for key, value in result.shown_figures().items()]
        if said:
            lines += ["", f"## {name}", "", *said]
    return "\n".join(lines) + "\n"


#: Options for a report of pytest that `read_figures` can read.
REPORT_OPTIONS = ("-o", "junit_family=xunit1")


def read_figures(report: Path) -> dict[str, object]:
    """Return how many tests a report of pytest has, how many were skipped, and what they gave to `record_property`."""
    if not report.exists():
        return {}
    suite = ElementTree.parse(report).getroot()[0]
    skipped = int(suite.attrib["skipped"])
    counts: dict[str, object] = {"tests": int(suite.attrib["tests"]) - skipped, "skipped": skipped or ""}
    # Hypothesis adds its statistics, as an encoded text.
    said = {each.attrib["name"]: each.attrib["value"] for each in suite.iter("property")}
    return counts | {name: value for name, value in said.items() if not name.startswith("hypothesis-")}


def read_failed_tests(report: Path) -> list[str]:
    """Return pytest's ids of the tests that failed in a report."""
    if not report.exists():
        return []
    cases = ElementTree.parse(report).getroot()[0].iter("testcase")
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    # A collection that failed has no file. One test can have two entries: of its call, and of its teardown.
    return list(dict.fromkeys(_id_of(case) for case in failed if "file" in case.attrib))


def _id_of(case: ElementTree.Element) -> str:
    name, parts = case.attrib["name"], case.attrib["classname"].split(".")
    # The attribute `file` is where the test's function is: of a state machine, in Hypothesis.
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if file == case.attrib["file"] or (ROOT / file).is_file():
            return "::".join([file, *parts[length:], name])
    return f"{case.attrib['file']}::{name}"


def current_commit() -> str:
    """Return the short name of the checkout's commit."""
    asked = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "not in git"


def note_second_run(result: Result, again: Result) -> None:
    """Note in the result of a part how its failed tests ended that were run again by themselves.

    Parameters
    ----------
    result : Result
        The part's.
    again : Result
        The result of these tests; if pytest did not run them all, nothing is noted.
    """
    if not again.passed and not again.failed_tests:
        return
    passed = [test for test in result.failed_tests if test not in again.failed_tests]
    result.figures |= {name: value for name, value in again.figures.items() if name not in ("tests", "skipped")}
    if passed:
        name = f"failed at first, and passed on {current_commit()}"
        earlier = [str(result.figures[name])] if name in result.figures else []
        result.figures[name] = ", ".join([*earlier, *passed])
    result.problems, result.failed_tests = again.problems, again.failed_tests


def note_end(result: Result, seconds: float) -> None:
    """Add to a result how long it took, when it ended, and on which commit."""
    result.seconds = round(seconds, 1)
    result.ended = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    result.commit = current_commit()
