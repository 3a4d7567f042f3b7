"""``jupyter exec run --docker`` as people type it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.executors.images import build, containers_of
from tests.support.full import only_in_full

# The first test of a session may have to make the images.
pytestmark = pytest.mark.timeout(900)


def jupyter_exec(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jupyter_exec_ext.cli", *args]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


@only_in_full
def test_the_command_line_runs_code_in_a_container(tmp_path: Path, engine: Any, seeds_image: str) -> None:
    (tmp_path / "fails.py").write_text("import sys; print(sys.version_info[:1]); sys.exit(7)\n")
    image = build(engine, "jupyter-exec-test-command", f"FROM {seeds_image}\nLABEL of=test_docker_command\n")
    done = jupyter_exec(tmp_path, "run", "fails.py", "--docker")
    assert (done.returncode, done.stdout) == (7, "(3,)\n"), done.stderr
    done = jupyter_exec(tmp_path, "run", "--docker", image, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert containers_of(engine, image) == []
    done = jupyter_exec(tmp_path, "run", "-c", "1", "--docker", "--server", "auto")
    assert done.returncode == 2 and "--docker" in done.stderr
