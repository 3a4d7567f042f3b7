"""Runs of notebooks, cell by cell: straight through, or restored to earlier cells at random.

The notebooks are the files of ``notebooks/``, in the percent format that editors know.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_exec_ext.models import Checkpoint

NOTEBOOKS = Path(__file__).parent / "notebooks"
_CELL = "# %%\n"
# What code can do to a session before it is restored: nothing of this may be left afterwards.
_SPOIL = """\
import os, random, sys, warnings
for here, _, files in os.walk("."):
    for file in files:
        open(os.path.join(here, file), "w").write("spoilt")
open("spoilt.txt", "w").close(); os.environ["STAGE"] = "spoilt"; os.chdir("/")
for name in [name for name in globals() if not name.startswith("_") and name not in get_ipython().user_ns_hidden]:
    value = globals().pop(name)
    if isinstance(value, (list, dict, set)) and name not in ("In", "Out"):
        value.clear()
warnings.resetwarnings(); random.seed(0); sys.path.clear()
1 / 0
"""
_PROBE = Path(__file__).parent / "namespace_probe.py"


@dataclass
class Run:
    """One run of a notebook: what each cell has shown, and what there is at the end.

    Parameters
    ----------
    cells : dict
        By the number of a cell, what it has shown.
    end : Any
        Variables, history and files after the last cell.
    restores : list of (int, int)
        The jumps: how many cells had run, and how many of them were kept.
    problems : list of str
        Cells that have shown something else than in the clean run.
    """

    cells: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    end: Any = None
    restores: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def cells_of(notebook: Path) -> list[str]:
    """Return the cells of a notebook; the comment at its top belongs to none."""
    return [cell.strip("\n") for cell in notebook.read_text().split(_CELL)[1:]]


def run_through(client: Any, cells: list[str]) -> Run:
    """Run the cells one after the other in a session of their own."""
    run = Run()
    with client.session() as session:
        for number, cell in enumerate(cells):
            run.cells[number] = _shown(session, cell)
        run.end = _probe(session)
    return run


def run_with_restores(client: Any, cells: list[str], clean: Run, *, seed: int, jumps: int, same_random: bool) -> Run:
    """Run the cells, and restore the session at random to states before earlier ones; the last time, as a branch.

    Parameters
    ----------
    client : ExecClient
        Of the server.
    cells : list of str
        The notebook.
    clean : Run
        Each cell is compared with that of this run.
    seed : int
        Of the choices.
    jumps : int
        How many times it goes back.
    same_random : bool
        Whether restored sessions draw the numbers that the session would have drawn.
    """
    choices, run, number = random.Random(seed), Run(), 0
    session = client.session()
    before: dict[int, Checkpoint] = {}
    try:
        while number < len(cells) or jumps:
            if number < len(cells):
                if number not in before:
                    before[number] = session.checkpoint(f"before {number}")
                run.cells[number] = _shown(session, cells[number])
                if run.cells[number] != clean.cells[number]:
                    shown = f"shows {run.cells[number]}\ninstead of {clean.cells[number]}"
                    run.problems.append(f"cell {number}, restored as {run.restores}, {shown}")
                number += 1
            if jumps and (number == len(cells) or choices.random() < 0.3):
                jumps -= 1
                target = choices.choice(sorted(before))
                run.restores.append((number, target))
                number = target
                if choices.random() < 0.5:
                    session.run(_SPOIL)
                if jumps:
                    session.restore(before[target], same_random=same_random)
                else:
                    (branch,) = session.branch(1, before[target], same_random=same_random)
                    session.close()
                    session, before = branch, {}
        run.end = _probe(session)
    finally:
        session.close()
    return run


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Return where two descriptions of a state differ, a line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return [line for name in names for line in differences(one.get(name), other.get(name), f"{where} {name}")]
    return [] if one == other else [f"{where.strip()}: {one}\ninstead of {other}"]


def _shown(session: Any, cell: str) -> tuple[str, list[str]]:
    """Return all that a cell has shown, but for numbers of processes and addresses of objects, and changed files."""
    execution = session.run(cell, on_input=lambda request: f"answer to {request.prompt}")
    error = execution.error and (execution.error.name, execution.error.value, execution.error.traceback)
    shown = (execution.state, execution.execution_count, execution.outputs, error)
    files = sorted(file.path for file in execution.files)
    return re.sub(r"ipykernel_\d+|0x[0-9a-f]+", "...", repr(shown)), files


def _probe(session: Any) -> Any:
    execution = session.run(_PROBE.read_text(), check=True)
    return json.loads(execution.stdout)
