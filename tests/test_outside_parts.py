"""Tests of `tests.support.outside_parts`: skips, failures under the variable, and the list at the end of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import outside_parts
from tests.support.outside_parts import PARTS, VARIABLE, OutsidePart, find_missing, require_part
from tests.support.outside_parts_plugin import summarize_skips

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests.support.outside_parts import PARTS, OutsidePart

pytest_plugins = ["tests.support.outside_parts_plugin"]
PARTS["warp drive"] = OutsidePart(lambda: "no ship has one", "apt-get install warp")
PARTS["starship"] = OutsidePart(lambda: None, "apt-get install starship", ("warp drive",))
PARTS["gravity"] = OutsidePart(lambda: "there is none here", "go to a planet", is_of_machine=True)
PARTS["air"] = OutsidePart(lambda: None, "open a window")
"""
TESTS = """
import pytest
from tests.support.outside_parts import require_part

@pytest.fixture(scope="module")
def ship():
    require_part("warp drive")

def test_fixture_of_one(ship): raise AssertionError("ran")
def test_fixture_of_another(ship): raise AssertionError("ran")

@pytest.mark.needs("air", "starship")
def test_marked(): raise AssertionError("ran")

@pytest.mark.needs("air")
def test_with_its_part(): pass

@pytest.mark.needs("gravity")
def test_of_the_machine(): raise AssertionError("ran")

@pytest.mark.skip(reason="needs: nothing")
def test_skipped_for_another_reason(): pass
"""


def run_pytest(directory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the example tests in a pytest of their own."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_ship.py").write_text(TESTS)
    (directory / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers\nasyncio_default_fixture_loop_scope = function\n"
    )
    kept = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "PYTEST_ADDOPTS")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    env = kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | env
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_missing_part_skips_its_tests_and_the_summary_lists_them(tmp_path: Path) -> None:
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 5 skipped" in done.stdout
    _, _, summary = done.stdout.partition("skipped because an outside part is missing")
    assert summary.splitlines()[1:7] == [
        "gravity: 1 skipped (there is none here)",
        "    to install it: go to a planet",
        "    in test_ship.py (1)",
        "warp drive: 3 skipped (no ship has one)",
        "    to install it: apt-get install warp",
        "    in test_ship.py (3)",
    ]


def test_under_the_variable_a_missing_part_fails_its_tests(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, **{VARIABLE: "1"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed, 2 skipped, 3 errors" in done.stdout
    assert "needs warp drive: no ship has one; to install it: apt-get install warp" in done.stdout
    _, _, summary = done.stdout.partition("skipped because an outside part is missing")
    assert "gravity: 1 skipped" in summary and "warp drive" not in summary


def test_a_run_without_missing_parts_has_no_list() -> None:
    assert summarize_skips([("tests/test_a.py::test_b", "Skipped: not on this architecture")]) == []


def test_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        require_part("phlogiston")


def test_a_part_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    part = OutsidePart(lambda: calls.append("call") or None, "nothing")  # type: ignore[func-returns-value]
    monkeypatch.setitem(PARTS, "counted", part)
    assert find_missing("counted") is None
    assert find_missing("counted") is None
    assert calls == ["call"]


@pytest.mark.parametrize("name", PARTS)
def test_each_probe_answers(name: str) -> None:
    missing = find_missing(name)
    if missing is not None:
        assert missing.problem
        assert summarize_skips([("tests/test_a.py::test_b", f"Skipped: {missing}")]), "the list would leave it out"


@pytest.mark.parametrize("name", ["bubblewrap", "container engine", "debootstrap", "node and npm", "curl", "chromium"])
def test_an_empty_path_lacks_every_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(outside_parts, "_DOCKER_SOCKET", tmp_path / "docker.sock")
    assert find_missing.__wrapped__(name) is not None
