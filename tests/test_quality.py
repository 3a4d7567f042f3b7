"""What machines can check of the code itself: types, style, and that what is made from something else is up to date."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def check(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)  # without a cache, on a busy machine
def test_types() -> None:
    check("-m", "mypy")


def test_style() -> None:
    check("-m", "ruff", "check", ".")


def test_format() -> None:
    check("-m", "ruff", "format", "--check", ".")


def test_the_synchronous_client_is_made_from_the_asynchronous_one() -> None:
    check("tools/make_sync_client.py", "--check")


def test_the_reference_says_what_the_code_says() -> None:
    check("tools/make_reference.py", "--check")


# The first releases without the known advisories that concern us.
FLOORS = {"jupyter_server": "2.21.0", "tornado": "6.5.8", "jupyterlab": "4.6.2"}


@pytest.mark.parametrize("package", FLOORS)
def test_no_version_with_a_known_advisory_is_allowed(package: str) -> None:
    match = re.search(rf'"{package}>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert match is not None
    assert tuple(map(int, match[1].split("."))) >= tuple(map(int, FLOORS[package].split(".")))


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    hosts = ["pypi" + ".org", "files.python" + "hosted", "registry.npm" + "js", "/ro" + "ot/", "/ho" + "me/"]
    for name in listed:
        text = (ROOT / name).read_text(errors="replace").replace("/ho" + "me/${", "")  # a variable names no machine
        assert not [host for host in hosts if host in text], name


@pytest.mark.parametrize("project", ["tests/hub", "tests/mcp/clients"])
def test_lock_of_an_npm_project_of_the_tests_names_no_registry(project: str) -> None:
    packages = json.loads((ROOT / project / "package-lock.json").read_text())["packages"]
    assert len(packages) > 10
    for name, package in packages.items():
        assert "resolved" not in package
        assert name == "" or "integrity" in package


def test_no_module_is_longer_than_350_lines() -> None:
    modules = (ROOT / "jupyter_exec_ext").rglob("*.py")
    long = [path.name for path in modules if len(path.read_text().splitlines()) > 350]
    assert long == []
