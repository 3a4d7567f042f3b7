"""What a kernel has to see is worked out from its command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_exec_ext.isolation.common.visible_files import view_of


@pytest.mark.parametrize("program", ["/bin/sh", "/usr/bin/env", "sh"])
def test_a_program_of_the_system_needs_no_installation_of_its_own(tmp_path: Path, program: str) -> None:
    """Not even ``/``, which a program in ``/bin`` might be taken to belong to."""
    work = tmp_path / "work"
    work.mkdir()
    view = view_of([program], str(work), resource_directory="")
    assert "/" not in view.read_only
    assert any(path.startswith("/usr") for path in view.read_only)


def test_an_environment_upon_the_systems_python_is_seen(tmp_path: Path) -> None:
    """Whichever of its two names the directory of the system's programs was found by."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/sh")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /bin\n")
    work = tmp_path / "work"
    work.mkdir()
    view = view_of([os.fspath(tmp_path / "venv" / "bin" / "python")], str(work), resource_directory="")
    assert str(tmp_path / "venv") in view.read_only
    assert "/" not in view.read_only
