"""The command that runs the heavy suites in full."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import full
from tests.support.commit_selection import choose_left_out
from tests.support.full_record import REPORT_OPTIONS, Result, read_failed_tests, read_figures


def test_help_names_each_part_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        full.main(["--help"])
    assert ended.value.code == 0
    text = "".join(capsys.readouterr().out.split())  # a long name may be broken at its hyphen
    assert all(name in text for name in full.PARTS)
    assert "examples:" in text


def test_list_shows_each_part_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert full.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(full.PARTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nothing"], "there is no part 'nothing'"), (["--cases", "nothing_*"], "no case is named nothing_*")],
)
def test_unknown_name_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        full.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_failed_part_makes_the_command_fail_and_is_in_table_and_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(options: full.Options) -> Result:
        return Result(["7 is more than 6"], {"number": 7, "cases": len(options.cases)})

    monkeypatch.setitem(full.PARTS, "failing", full.Part("fails", "1 s", run))
    file = tmp_path / "record.json"
    assert full.main(["failing", "--cases", "parent_id_list@none", "--record", str(file)]) == 1
    table = capsys.readouterr().out
    assert "failing                FAILED" in table
    assert "does not hold: 7 is more than 6" in table
    kept = json.loads(file.read_text())["failing"]
    assert (kept["problems"], kept["figures"]) == (["7 is more than 6"], {"number": 7, "cases": 1})
    assert kept["commit"] and kept["ended"]
    assert "| failing | **failed** |" in file.with_suffix(".md").read_text()


def test_recorded_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    broken = {"second"}

    def part(name: str) -> full.Part:
        def run(_options: full.Options) -> Result:
            ran.append(name)
            return Result(["broken"] if name in broken else [])

        return full.Part("counts", "1 s", run)

    monkeypatch.setattr(full, "PARTS", {name: part(name) for name in ("first", "second", "third")})
    command = ["--record", str(tmp_path / "record.json")]
    assert full.main(command) == 1
    broken.clear()
    assert full.main(command) == 0
    assert ran == ["first", "second", "third", "second"]
    assert full.main([*command, "first"]) == 0
    assert ran[4:] == ["first"]
    assert full.main([*command, "*ir*"]) == 0
    assert ran[5:] == ["first", "third"]
    assert list(json.loads((tmp_path / "record.json").read_text())) == ["first", "second", "third"]


def test_only_failed_tests_run_again_until_they_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    broken = ["tests/test_a.py::test_one", "tests/test_a.py::test_two[x]"]

    def run(options: full.Options) -> Result:
        asked.append(options.tests)
        failed = [test for test in broken if test in (options.tests or broken)]
        return Result([f"{test} failed" for test in failed], {"tests": len(options.tests) or 9}, failed_tests=failed)

    def stop(options: full.Options) -> Result:
        return Result(["pytest ended with 3; see above"])

    monkeypatch.setattr(full, "PARTS", {"first": full.Part("a", "1 s", run), "second": full.Part("b", "1 s", stop)})
    file = tmp_path / "record.json"
    command = ["--record", str(file), "--failed"]
    assert full.main(command[:2]) == 1
    both = tuple(broken)
    del broken[0]
    assert full.main(command) == 1
    assert json.loads(file.read_text())["first"]["failed_tests"] == broken
    broken.clear()
    assert full.main(command) == 1  # the second part has no tests that could be run alone
    assert asked == [(), both, both[1:]]
    first = json.loads(file.read_text())["first"]
    assert (first["problems"], first["failed_tests"], first["figures"]["tests"]) == ([], [], 9)
    assert all(test in file.with_suffix(".md").read_text() for test in both)
    assert "| second | **failed** |" in file.with_suffix(".md").read_text()


def test_failed_tests_are_looked_up_in_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        full.main(["--failed"])
    assert ended.value.code == 2
    assert "--failed needs --record" in capsys.readouterr().err


def test_file_that_is_no_record_is_refused_and_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text('["bread", "milk"]')
    with pytest.raises(SystemExit) as ended:
        full.main(["--record", str(file)])
    assert ended.value.code == 2
    assert "is no record of a full run" in capsys.readouterr().err
    assert file.read_text() == '["bread", "milk"]'


@dataclass(eq=False)
class FakeTest:
    """A collected test, as far as the choice of places looks at it."""

    originalname: str
    params: dict[str, Any]
    is_for_every_place: bool = False
    path: Path = Path("tests/test_any.py")

    @property
    def callspec(self) -> Any:
        return SimpleNamespace(params=self.params)

    def get_closest_marker(self, name: str) -> Any:
        return name if self.is_for_every_place and name == "every_place" else None


def test_each_case_remains_in_one_place_per_commit() -> None:
    hosts, codes = ["server", "gateway"], ["1", "2"]
    both = [FakeTest("test_a", {"host": host, "code": code}) for host in hosts for code in codes]
    everywhere = [FakeTest("test_b", {"host": host}, is_for_every_place=True) for host in hosts]
    others = [FakeTest("test_c", {"code": code}) for code in codes] + [FakeTest("test_d", {"host": "hub"})]
    tests: Any = [*both, *everywhere, *others]
    left_out: Any = choose_left_out(tests)
    assert sorted(test.params["code"] for test in left_out) == codes
    assert {test.originalname for test in left_out} == {"test_a"}
    assert len({test.params["host"] for test in left_out}) == 1


def test_figures_of_a_report_of_pytest_are_kept(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import pytest\nfrom hypothesis import given, strategies\n"
        "def test_one(record_property): record_property('cut', '20 of 20')\n"
        "@given(strategies.integers())\n"
        "def test_any(number): pass\n"
        "@pytest.mark.skip\n"
        "def test_two(): pass\n"
    )
    report = tmp_path / "report.xml"
    options = [f"--rootdir={tmp_path}", f"--junitxml={report}", *REPORT_OPTIONS]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio", *options, str(test)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert read_figures(report) == {"tests": 2, "skipped": 1, "cut": "20 of 20"}
    assert read_figures(tmp_path / "none.xml") == {}


def test_failed_tests_of_a_report_have_the_ids_that_pytest_takes(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(
        "import pytest\n"
        "class TestIt:\n"
        "    @pytest.mark.parametrize('text', ['a b', 'c::d', '\\x1b'])\n"
        "    def test_one(self, text): assert text == 'never'\n"
        "@pytest.fixture\n"
        "def broken():\n"
        "    yield\n"
        "    assert False\n"
        "def test_two(broken): assert False\n"
        "def test_three(): pass\n"
    )
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", f"--junitxml={report}", *REPORT_OPTIONS]
    assert subprocess.run([*command, "tests"], cwd=tmp_path, capture_output=True, check=False).returncode == 1
    failed = read_failed_tests(report)
    assert len(failed) == 4
    assert subprocess.run([*command, *failed], cwd=tmp_path, capture_output=True, check=False).returncode == 1
    assert read_failed_tests(report) == failed
    assert read_failed_tests(tmp_path / "none.xml") == []
