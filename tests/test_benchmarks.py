"""The benchmarks' machinery; what they measure is never a test."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import executors, goals, peers, plot, pool_tables, roundtrip, stats, versions
from benchmarks.__main__ import PEERS, build_parser, main
from benchmarks.bench import Bench, Handle, WrongAnswerError, prints
from benchmarks.contender_table import AUTOGEN, DIRECT, POST_REQUESTS
from benchmarks.executors import CONTESTANTS, OWN, SERVER, Contender, Times, measure, rows
from benchmarks.goals import GOALS, POOL_GOALS
from benchmarks.interleave import interleaved
from benchmarks.peers import ROOT, PeerError, Worker
from benchmarks.pool import page as pool_page
from benchmarks.report import markdown
from benchmarks.results import Results, Series
from benchmarks.rows import ROWS, first, outputs, warm
from benchmarks.servers import GATEWAY

SCRIPTS = Path(executors.__file__).parent / "peers" / "executors"
WORKER = """
from benchmarks.peers.executors.worker import serve

class Here:
    def __init__(self):
        print("what anybody prints is no answer")
    def run(self, code):
        return str(eval(code[len("print"):]))
    def close(self):
        print("closed")

class Wrong(Here):
    def run(self, code):
        return "41"

class Broken(Here):
    def run(self, code):
        raise RuntimeError("no kernel today")

serve({"here": Here, "wrong": Wrong, "broken": Broken})
"""
CONTENDERS = """
from benchmarks.contenders.worker import serve

class Echo:
    def __init__(self, twice):
        print("what anybody prints is no answer")
        self.times = 1 + twice
    async def run(self, code):
        return code * self.times
    def fail(self):
        raise RuntimeError("no kernel today")
    def close(self):
        pass

serve({"echo": Echo})
"""


def worker() -> Worker:
    return Worker(Path(sys.executable), "-c", WORKER)


def test_every_executor_is_made_and_run_in_turns() -> None:
    here = Contender("test", "here", "Here", OWN)
    with worker() as running:
        times = measure([here], {"test": running}, rounds=2, runs=3)[here]
    assert (len(times.first), len(times.warm)) == (2, 6)
    assert min(times.first + times.warm) > 0


def test_a_wrong_answer_is_no_measurement() -> None:
    wrong = Contender("test", "wrong", "Wrong", OWN)
    with worker() as running, pytest.raises(PeerError, match="Wrong gave '41'"):
        measure([wrong], {"test": running}, rounds=1, runs=1)


def test_a_worker_that_ends_says_why() -> None:
    broken = Contender("test", "broken", "Broken", OWN)
    with worker() as running, pytest.raises(PeerError, match="no kernel today"):
        measure([broken], {"test": running}, rounds=1, runs=1)


def test_ratios_are_to_the_fastest_of_ours_in_the_same_place() -> None:
    ours, slower = Contender("ours", "a", "A", SERVER), Contender("ours", "b", "B", SERVER)
    theirs, elsewhere = Contender("peer", "c", "C", SERVER), Contender("peer", "d", "D", OWN)
    times = {
        slower: Times([0.3, 0.5], [0.02, 0.02]),
        ours: Times([0.2, 0.2], [0.01, 0.01]),
        theirs: Times([0.1, 0.1], [0.03, 0.03]),
        elsewhere: Times([0.001, 0.001], [0.001, 0.001]),
    }
    assert [line.split()[-6:] for line in rows(times, SERVER)] == [
        ["400.00", "350.0-450.0", "2.00", "20.00", "20.0-20.0", "2.00"],
        ["200.00", "200.0-200.0", "1.00", "10.00", "10.0-10.0", "1.00"],
        ["100.00", "100.0-100.0", "0.50", "30.00", "30.0-30.0", "3.00"],
    ]


def test_what_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peer.txt").write_text("--no-index\nno-such-package\n")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path / "environments")
    with pytest.raises(PeerError, match=r"peer is not installed: run `.+ -m pip install -r .+peer\.txt`"):
        peers.environment("peer")
    assert not (tmp_path / "environments" / "peer" / "requirements.txt").exists()  # so that it is tried again


@pytest.mark.parametrize("name", sorted({contender.worker for contender in CONTESTANTS}))
def test_a_script_serves_those_of_its_contenders_that_the_table_names(name: str) -> None:
    tree = ast.parse((SCRIPTS / f"{name}.py").read_text())
    served = [
        call.args[0] for call in ast.walk(tree) if isinstance(call, ast.Call) and ast.unparse(call.func) == "serve"
    ]
    assert len(served) == 1 and isinstance(served[0], ast.Dict)
    names = {ast.literal_eval(key) for key in served[0].keys if key is not None}
    assert names == {found.name for found in CONTESTANTS if found.worker == name}
    assert (SCRIPTS.parent / f"{name}.txt").is_file()


def test_help_says_what_is_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.executors", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SCRIPTS.parents[2])
    assert "--rounds" in shown.stdout and "first result" in shown.stdout


SERIES = [
    Series(first.TABLE, AUTOGEN.label, "ms", [600.0, 640.0, 680.0]),
    Series(first.TABLE, goals.POOLED.label, "ms", [8.0, 8.0, 8.0]),
    Series(first.TABLE, DIRECT.label, "ms", [400.0, 400.0, 400.0]),
]
MACHINE = {
    "date": "2030-01-02T03:04:05Z",
    "commit": "0123456789ab",
    "processor": "Abacus 9",
    "cores": 2,
    "memory_bytes": 2**34,
    "system": "Linux 9.9",
    "python": "3.14.0",
    "versions": {"tornado": "6.6"},
    "peers": {"autogen02": {"pyautogen": "0.2.35"}},
    "load_average_before": [0.1, 0.2, 0.3],
    "load_average_after": [1.0, 0.9, 0.8],
    "seconds": 600,
}


def test_quantiles_lie_between_samples() -> None:
    found = stats.summary([4.0, 1.0, 3.0, 2.0])
    assert (found.minimum, found.lower_quartile, found.median, found.upper_quartile) == (1.0, 1.75, 2.5, 3.25)
    assert found.p99 == pytest.approx(3.97)
    assert (found.count, found.maximum) == (4, 4.0)
    assert stats.summary([7.0]).p99 == 7.0
    with pytest.raises(ValueError, match="no samples"):
        stats.summary([])


def test_many_samples_are_thinned_to_their_quantiles_and_few_are_kept() -> None:
    assert stats.thinned([3.14159, 1.0], 5) == [3.142, 1.0]
    thin = stats.thinned([float(number) for number in range(1001)], 5)
    assert thin == [0.0, 250.0, 500.0, 750.0, 1000.0]


def test_two_modes_are_two_bins() -> None:
    assert stats.histogram([48.0, 91.0, 49.5, 92.0, 93.0], 10.0) == [(40.0, 2), (90.0, 3)]


def test_contenders_take_turns_and_the_first_one_changes() -> None:
    seen: list[str] = []

    def contender(name: str) -> float:
        seen.append(name)
        return float(len(seen))

    turns = {name: partial(contender, name) for name in "abc"}
    rests: list[int] = []
    samples = interleaved(turns, rounds=2, warm_up=1, settle=lambda: rests.append(1))
    assert "".join(seen) == "abcbcacab"
    assert samples == {"a": [6.0, 8.0], "b": [4.0, 9.0], "c": [5.0, 7.0]}  # those of the first round do not count
    assert len(rests) == 9


def test_a_goal_holds_or_not_or_is_not_known() -> None:
    fresh, _, forked, *_ = GOALS
    results = Results(SERIES)
    assert (fresh.figure(results), fresh.holds(results)) == (80.0, True)
    assert (forked.figure(results), forked.holds(results)) == (None, None)
    worse = Results([*SERIES[:1], Series(first.TABLE, goals.POOLED.label, "ms", [20.0])])
    assert fresh.holds(worse) is False
    memory = next(goal for goal in GOALS if goal.unit == "MB")
    table, contender, _ = memory.over[0]
    assert memory.holds(Results([Series(table, contender, "MB", [15.0])])) is True
    assert memory.holds(Results([Series(table, contender, "MB", [15.1])])) is False


def test_a_goal_names_contenders_that_its_rows_have() -> None:
    sources = {first.TABLE: first.CONTESTANTS, first.LIBRARIES_TABLE: first.WITH_LIBRARIES}
    sources |= {first.CHART_TABLE: first.WITH_LIBRARIES}
    sources |= {warm.PRINT_TABLE: warm.CONTESTANTS, outputs.PRINTS_TABLE: outputs.CONTESTANTS}
    sources |= {outputs.PICTURE_TABLE: outputs.CONTESTANTS}
    for goal in GOALS:
        for table, contender, _ in (*goal.over, *goal.under):
            if table in sources:
                assert contender in {one.label for one in sources[table]}, goal.what


def test_the_report_says_what_holds_and_what_was_left_out() -> None:
    results = Results(SERIES, left_out={"ExecClient: fork": "no fork today\nand more of it"})
    text = markdown(results, MACHINE, GOALS, "python -m benchmarks")
    assert "| ≥ 40 x | 80 x | yes |" in text and "| not measured | not known |" in text
    assert "- ExecClient: fork: no fork today\n" in text and "and more" not in text
    assert "Abacus 9, 2 cores, 16 GiB" in text and "pyautogen 0.2.35" in text
    assert f"| {goals.POOLED.label} | 8 | 8 to 8 | 8 | 3 | 80 | 0.02 |" in text
    assert "600 to 610 ms: 1, 640 to 650 ms: 1, 680 to 690 ms: 1" in text


def test_the_plot_is_a_picture_of_tables_with_ours_and_others() -> None:
    alone = Series("alone", "ExecClient: plain", "ms", [1.0])
    picture = ElementTree.fromstring(plot.svg(Results([*SERIES, alone])))
    texts = [element.text for element in picture.iter() if element.text and element.text.strip()]
    assert texts[0] == "fresh session to first print(1)" and "8 ms" in texts and "alone" not in texts
    bars = [float(element.get("width", "0")) for element in picture.iter() if element.tag.endswith("rect")][1:]
    assert len(bars) == 3 and 0 < bars[0] < bars[1] < bars[2]
    assert next(text for text in texts if text in {one.contender for one in SERIES}) == goals.POOLED.label


def test_the_committed_report_is_small_and_of_these_goals() -> None:
    place = ROOT / "docs" / "contributing" / "performance"
    assert (place / "report.json").stat().st_size < 300_000
    content = json.loads((place / "report.json").read_text())
    assert [goal["goal"] for goal in content["goals"]] == [goal.what for goal in GOALS]
    for goal in GOALS:
        assert goal.what in (place / "report.md").read_text()


def pool_results() -> Results:
    """Return results of `benchmarks.pool` in which each goal holds, but that of memory."""
    tables = (pool_tables.WARM_TABLE, pool_tables.FRESH_TABLE, pool_tables.FRESH_RUN_TABLE)
    results = Results()
    for table in (*tables, pool_tables.UP_TABLE, pool_tables.DOWN_TABLE):
        ways = (pool_tables.POOL, pool_tables.PROXY, pool_tables.DIRECT)
        results.add(table, "ms", {way: [11.0 - number] for number, way in enumerate(ways)})
    results.add(pool_tables.MEMORY_TABLE, "MiB", {pool_tables.MEMORY: [33.0]})
    return results


def test_goals_of_the_pool_are_of_what_it_measures() -> None:
    held = [goal.holds(pool_results()) for goal in POOL_GOALS]
    assert held == [True] * (len(POOL_GOALS) - 1) + [False]
    text = pool_page(pool_results(), MACHINE, "python -m benchmarks.pool")
    assert "| ≤ 32 MiB | 33 MiB | **no** |" in text and "## File down" in text


def test_the_committed_page_of_the_pool_is_of_these_goals() -> None:
    text = (ROOT / "docs" / "contributing" / "performance" / "pool.md").read_text()
    for goal in POOL_GOALS:
        assert f"| {goal.what} | {goal.bound} |" in text


def test_what_a_contender_raises_is_told_with_its_name() -> None:
    with Worker(Path(sys.executable), "-c", CONTENDERS) as running:
        assert running.ask(["first", "a", "echo", {"twice": True}, "x"])["value"]["head"] == "xx"
        long = running.ask(["call", "a", "run", ["y" * 10**6]])["value"]
        assert (long["length"], len(long["head"])) == (2 * 10**6, 200)
        assert "no kernel today" in running.ask(["call", "a", "fail", []])["error"]
        assert running.ask(["close", "a"])["value"] is None
        assert "KeyError" in running.ask(["call", "a", "run", ["z"]])["error"]


def test_a_wrong_result_ends_a_row_and_says_whose() -> None:
    check = prints("1")
    assert check({"length": 2, "head": "1\n"})
    assert not check({"length": 10**6, "head": "1\n"})
    with Bench(Results(), rounds=1) as bench, bench.servers([POST_REQUESTS]) as servers:
        handle = Handle(bench, POST_REQUESTS, servers)
        assert handle.first("print(1)", check) > 0
        with pytest.raises(WrongAnswerError, match=r"Tornado POST \(requests\) gave"):
            handle.first("print(2)", prints("2"))
        with pytest.raises(PeerError, match=r"Tornado POST \(requests\) failed(.|\n)*KeyError: 'no such'"):
            Handle(bench, replace(POST_REQUESTS, kind="no such"), servers).make()


def test_what_a_peer_does_wrong_is_told_and_is_no_sample() -> None:
    results = Results()
    with Bench(results, rounds=1) as bench, bench.servers([POST_REQUESTS]) as servers:
        ours = Handle(bench, POST_REQUESTS, servers)
        peer = Handle(bench, replace(POST_REQUESTS, label="Peer"), servers)
        peer.contender = replace(peer.contender, place=GATEWAY)  # of somebody else
        answers = iter([1.0, 0.0, 3.0])

        def sample(handle: Handle) -> float:
            answer = next(answers) if handle is peer else 1.0
            if not answer:
                raise WrongAnswerError("Peer gave 0")
            return answer

        found = bench.interleave([ours, peer], sample, rounds=2)
        peer.contender, answers = POST_REQUESTS, iter([0.0])
        with pytest.raises(WrongAnswerError):
            bench.interleave([peer], sample, rounds=1)
    assert found == {POST_REQUESTS.label: [1.0, 1.0], "Peer": [3.0]}
    assert "- Peer, 1 times: `Peer gave 0`" in markdown(results, MACHINE, GOALS, "")


def test_a_round_trip_is_held_against_the_loop_and_autogen() -> None:
    loop, autogen = {DIRECT.label: [5.0]}, {AUTOGEN.label: [96.0]}
    ours = dict(zip((one.label for one in roundtrip.OURS), ([6.0], [7.0], [8.0]), strict=True))
    lines = roundtrip.table("print(1)", {**loop, **autogen, **ours})
    assert [line.split()[-5:] for line in lines[1:3]] == [
        ["5.00", "5.0", "1", "1.00", "19.2"],
        ["6.00", "6.0", "1", "1.20", "16.0"],
    ]
    assert lines[-2:] == [
        "ours at most 2 x the loop: holds (1.60 x)",
        "ours at least 8 x as fast as AutoGen: holds (12.0 x; the loop itself 19.2 x)",
    ]
    slow = roundtrip.table("print(1)", {**loop, **autogen, **ours, roundtrip.OURS[0].label: [12.5]})
    assert "does NOT hold (2.50 x)" in slow[-2] and "does NOT hold (7.7 x" in slow[-1]


def test_who_is_not_wanted_is_told_to_be_left_out() -> None:
    results = Results()
    with Bench(results, rounds=1, without=frozenset(PEERS)) as bench:
        assert bench.available([AUTOGEN, DIRECT]) == [DIRECT]
    assert "--without" in results.left_out[AUTOGEN.label]


def test_every_contender_of_a_peer_has_a_file_with_versions() -> None:
    for contender in {*first.CONTESTANTS, *first.WITH_LIBRARIES, *warm.CONTESTANTS, *outputs.CONTESTANTS}:
        for name in contender.environments:
            assert name in PEERS
            lines = (Path(peers.HERE) / f"{name}.txt").read_text().splitlines()
            assert any("==" in line for line in lines), name


def test_one_row_is_measured_on_a_real_server(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--quick",
        "--no-peers",
        "--rows",
        "tokens",
        "--output",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.svg", "report.json", "report.md"]
    assert "## Warm `print(1)` with a scoped token" in done.stdout
    assert "| ExecClient: scoped token |" in done.stdout and "| ExecClient: owner |" in done.stdout


def test_what_was_measured_before_a_row_failed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fine(bench: Bench) -> None:
        bench.results.add("a table", "ms", {"ExecClient: plain": [1.5]})

    def fails(bench: Bench) -> None:
        raise WrongAnswerError("ours gave 41")

    for name, row in (("first", fine), ("warm", fails)):
        monkeypatch.setitem(ROWS, name, row)
    monkeypatch.setattr("benchmarks.__main__.PARTIAL", tmp_path)
    assert main(["--rows", "first", "warm", "outputs", "--no-peers"]) == 1
    assert "warm: ours gave 41" in capsys.readouterr().err
    assert "| ExecClient: plain | 1.5 | 1 |" in (tmp_path / "report.md").read_text()


def test_the_command_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ROWS) and all(goal.what in shown for goal in GOALS)
    text = build_parser().format_help()
    assert "--rounds" in text and "python -m benchmarks --quick" in text


def test_versions_are_compared_by_the_ratio_of_their_medians() -> None:
    before = [10.0 + number % 5 for number in range(300)]
    ratio, low, high = versions.ratio_interval(before, [value * 1.1 for value in before])
    assert ratio == pytest.approx(1.1) and low <= ratio <= high
    assert versions.ratio_interval(before, before)[1] <= 1 <= versions.ratio_interval(before, before)[2]
