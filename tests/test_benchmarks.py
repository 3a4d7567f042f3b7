"""The benchmarks' machinery; what they measure is never a test."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import executors, peers
from benchmarks.executors import CONTESTANTS, OWN, SERVER, Contestant, Times, measure, rows
from benchmarks.peers import PeerError, Worker

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


def worker() -> Worker:
    return Worker(Path(sys.executable), "-c", WORKER)


def test_every_executor_is_made_and_run_in_turns() -> None:
    here = Contestant("test", "here", "Here", OWN)
    with worker() as running:
        times = measure([here], {"test": running}, rounds=2, runs=3)[here]
    assert (len(times.first), len(times.warm)) == (2, 6)
    assert min(times.first + times.warm) > 0


def test_a_wrong_answer_is_no_measurement() -> None:
    wrong = Contestant("test", "wrong", "Wrong", OWN)
    with worker() as running, pytest.raises(PeerError, match="Wrong gave '41'"):
        measure([wrong], {"test": running}, rounds=1, runs=1)


def test_a_worker_that_ends_says_why() -> None:
    broken = Contestant("test", "broken", "Broken", OWN)
    with worker() as running, pytest.raises(PeerError, match="no kernel today"):
        measure([broken], {"test": running}, rounds=1, runs=1)


def test_ratios_are_to_the_fastest_of_ours_in_the_same_place() -> None:
    ours, slower = Contestant("ours", "a", "A", SERVER), Contestant("ours", "b", "B", SERVER)
    theirs, elsewhere = Contestant("peer", "c", "C", SERVER), Contestant("peer", "d", "D", OWN)
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


@pytest.mark.parametrize("name", sorted({contestant.worker for contestant in CONTESTANTS}))
def test_a_script_serves_those_of_its_contestants_that_the_table_names(name: str) -> None:
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
