"""The example of a search in a tree of branches runs as its page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tree_search.py"


@pytest.mark.skipif(sys.platform != "linux", reason="branches need Linux")
def test_the_example_finds_the_way(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "x += 5; x\n6\nx *= 3; x\n18\nx += 5; x\n23\n"
