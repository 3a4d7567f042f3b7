"""Notebooks that are restored to earlier cells at random show the same, and end with the same, as a clean run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.checkpoints.notebook_runs import NOTEBOOKS, cells_of, differences, run_through, run_with_restores
from tests.support.full import only_in_full, scaled
from tests.support.outside_parts import require_part

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")

_PER_COMMIT = ("cleaning_in_place", "files")
_JUMPS = scaled(4, per_commit=3)
_NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipy"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in _PER_COMMIT else only_in_full) for name in _NAMES]
)
@pytest.mark.timeout(1800)
def test_restored_notebook_shows_and_ends_with_the_same_as_a_clean_run(
    name: str, hosts: Any, record_property: Callable[[str, object], None]
) -> None:
    if name.startswith("scikit_learn"):
        require_part("scikit-learn")
    cells = cells_of(NOTEBOOKS / f"{name}.ipy")
    restores = 0
    with ExecClient(hosts["server"].info) as client:
        clean = run_through(client, cells)
        for seed in range(scaled(5, per_commit=1)):
            # Where a notebook draws from the global generators, others would be right, too.
            same_random = name == "random_numbers" or seed % 2 == 0
            run = run_with_restores(client, cells, clean, seed=seed, jumps=_JUMPS, same_random=same_random)
            assert not run.problems, f"seed {seed}: {run.problems[0]}"
            differing = differences(run.end, clean.end)
            assert not differing, f"seed {seed}, restored as {run.restores}: {differing[0]}"
            restores += len(run.restores)
    record_property(f"restores of {name}", restores)


def test_there_are_twenty_notebooks_and_each_says_what_it_is_about() -> None:
    assert len(_NAMES) >= 20
    for path in map(Path, NOTEBOOKS.glob("*")):
        assert path.read_text().startswith("# ") and len(cells_of(path)) >= 4, path.name
