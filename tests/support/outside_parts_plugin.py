"""Pytest plugin for outside parts: the marker ``needs``, and the list of skips by part at the end of a run.

`outside_parts` knows the parts; this module must not be imported before `tests/conftest.py` loads it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.outside_parts import require_part

# `str(MissingPart)`, as it stands in the reason of a skip.
_REASON = re.compile(r"needs ([^:]+): (.*); to install it: (.*)", re.DOTALL)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "needs(*parts): outside parts without which the test is skipped")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the parts that a test's markers name, before its fixtures start anything."""
    for marker in item.iter_markers("needs"):
        require_part(*marker.args)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """List the skips by part, below everything else that pytest prints."""
    yield
    reports = terminalreporter.stats.get("skipped", [])
    skips = [(report.nodeid, report.longrepr[2]) for report in reports if isinstance(report.longrepr, tuple)]
    lines = summarize_skips(skips)
    if lines:
        terminalreporter.section("skipped because an outside part is missing")
        for line in lines:
            terminalreporter.write_line(line)


def summarize_skips(skips: list[tuple[str, str]]) -> list[str]:
    """Return the lines that list skipped tests by missing part; other skips are left out.

    Parameters
    ----------
    skips : list of (str, str)
        Node id and reason of each skipped test.
    """
    files: dict[tuple[str, str, str], Counter[str]] = {}
    for nodeid, reason in skips:
        if match := _REASON.search(reason):
            name, problem, install = match.groups()
            files.setdefault((name, problem, install), Counter())[nodeid.partition("::")[0]] += 1
    lines = []
    for (name, problem, install), count in sorted(files.items()):
        lines.append(f"{name}: {count.total()} skipped ({problem})")
        lines.append(f"    to install it: {install}")
        lines.append(f"    in {', '.join(f'{file} ({number})' for file, number in sorted(count.items()))}")
    return lines
