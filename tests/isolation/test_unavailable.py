"""A reason, instead of an exception, where programs and directories for a sandbox do not work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_exec_ext.cli import doctor_checks
from jupyter_exec_ext.isolation.common.isolated_provisioner import IsolatedProvisioner
from jupyter_exec_ext.isolation.sandbox import bubblewrap
from jupyter_exec_ext.isolation.sandbox.sandbox_provisioner import SandboxProvisioner

HANGS = "#!/bin/sh\nexec sleep 60\n"
HANGS_AFTER_VERSION = '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\nexec sleep 60\n'


@pytest.fixture
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path at which the sandbox looks for bubblewrap first."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(bubblewrap, "_TRIAL_SECONDS", 0.1)
    return tmp_path / "bwrap"


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("program", [HANGS, HANGS_AFTER_VERSION], ids=["version", "trial"])
def test_bubblewrap_that_hangs_is_a_reason(bwrap: Path, program: str) -> None:
    bwrap.write_text(program)
    bwrap.chmod(0o755)
    assert f"bubblewrap ({bwrap}) did not end within 0.1 s" in str(SandboxProvisioner.unavailable())


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("program", ["\x7fELF", "#!/no/such/interpreter\n"], ids=["format", "interpreter"])
def test_bubblewrap_that_cannot_be_executed_is_a_reason(bwrap: Path, program: str) -> None:
    bwrap.write_text(program)
    bwrap.chmod(0o755)
    assert f"bubblewrap ({bwrap}) does not work" in str(SandboxProvisioner.unavailable())


@pytest.mark.needs("sandbox")
def test_doctor_names_bubblewrap_without_its_version_if_it_hangs(bwrap: Path) -> None:
    bwrap.write_text(HANGS)
    bwrap.chmod(0o755)
    assert doctor_checks._bubblewrap() == "bubblewrap"


def test_directory_for_sockets_that_cannot_be_made_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ready(IsolatedProvisioner):
        @classmethod
        def require(cls) -> None:
            """Everything else is there."""

    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc")
    assert "/proc/jex, for the sockets of kernels, could not be made" in str(Ready.unavailable())
