"""What the doctor says of the JupyterLab front end, which is looked for where JupyterLab looks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_exec_ext import __version__
from jupyter_exec_ext.cli import doctor_checks
from jupyter_exec_ext.cli.doctor_checks import NAME, front_end
from jupyter_exec_ext.cli.doctor_command import Finding
from tests.support.hosts import clean_environment


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jupyter's directories, empty, in the place of this environment's; return where front ends are."""
    for name, value in clean_environment(tmp_path).items():
        if name.startswith("JUPYTER"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("jupyter_core.paths.ENV_JUPYTER_PATH", [str(tmp_path / "env")])
    monkeypatch.setattr("jupyter_core.paths.ENV_CONFIG_PATH", [str(tmp_path / "etc")])
    return tmp_path / "jupyter_data_dir" / "labextensions"


def install(places: Path, version: str = __version__, **build: str) -> None:
    (places / NAME).mkdir(parents=True)
    package = {"name": NAME, "version": version, "jupyterlab": {"_build": build} if build else {}}
    (places / NAME / "package.json").write_text(json.dumps(package))


WHOLE = {"load": "static/remoteEntry.js", "extension": "./extension"}


def told() -> Finding:
    (finding,) = front_end()
    return finding


def test_missing_front_end_is_a_note_with_a_remedy() -> None:
    assert told().what == "the JupyterLab front end is not installed"
    assert told().mark == "note"
    assert "REQUIRE_LABEXTENSION=1 pip install ." in told().remedy


def test_installed_front_end_is_ok(places: Path) -> None:
    install(places, **WHOLE)
    assert told() == Finding("the JupyterLab front end is enabled")


def test_front_end_that_was_never_built_fails(places: Path) -> None:
    install(places)
    assert told().what.startswith("the JupyterLab front end is not whole (")
    assert told().mark == "FAIL"


def test_front_end_of_another_version_fails(places: Path) -> None:
    install(places, "0.0.1", **WHOLE)
    assert f"is of version 0.0.1, and this package is {__version__}" in told().what
    assert told().mark == "FAIL"


def test_disabled_front_end_is_enabled_by_the_remedy(places: Path, tmp_path: Path) -> None:
    install(places, **WHOLE)

    def labextension(*args: str) -> None:
        command = [sys.executable, "-m", "jupyter", "labextension", *args, "--level=user"]
        subprocess.run(command, check=True, capture_output=True, env=clean_environment(tmp_path), timeout=120)

    labextension("disable", NAME)
    assert told().what == "the JupyterLab front end is disabled"
    assert told().mark == "note"
    words = told().remedy.split()
    assert words[:2] == ["jupyter", "labextension"]
    labextension(*words[2:])
    assert told().mark == "ok"


def test_front_end_check_without_jupyterlab_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "find_spec", lambda name: None)
    assert list(front_end()) == []
