"""What is published: the two files, the workflows that build them, and the recipe for conda-forge."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from jupyter_exec_ext import __version__
from tests.support.full import only_in_full

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def workflow(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return content


def steps_of(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", step.get("uses", "")) for step in job["steps"])


def test_ci_workflow_runs_what_must_pass() -> None:
    assert ".ci/run" in steps_of(workflow("ci.yml")["jobs"]["ci"])


def test_release_workflow_publishes_checked_files_without_a_kept_token() -> None:
    content = workflow("release.yml")
    built = steps_of(content["jobs"]["build"])
    assert "python -m build" in built
    assert "twine check --strict" in built
    assert content["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    found = re.search(r"sed -n '(.*?)'", built)
    assert found is not None
    source = ROOT / "jupyter_exec_ext" / "__init__.py"
    read = subprocess.run(["sed", "-n", found[1], str(source)], capture_output=True, text=True, check=True)
    assert read.stdout.strip() == __version__


def test_recipe_requires_what_the_package_does() -> None:
    text = (ROOT / "docs" / "contributing" / "recipe" / "meta.yaml").read_text()
    assert f'set version = "{__version__}"' in text
    recipe = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", re.sub(r"\{%.*?%\}", "", text)))
    run = {Requirement(line).name.lower(): str(Requirement(line).specifier) for line in recipe["requirements"]["run"]}
    assert run.pop("python") == PROJECT["requires-python"]
    needed = [Requirement(line) for line in PROJECT["dependencies"]]
    assert run == {requirement.name.lower(): str(requirement.specifier) for requirement in needed}


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_issue_form_has_name_description_and_questions_with_ids(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    assert form["name"]
    assert form["description"]
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in questions}) == len(questions) > 0


@only_in_full
def test_both_files_build_pass_the_check_and_install(tmp_path: Path) -> None:
    def run(*command: str | Path) -> None:
        done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    tools = tmp_path / "tools"
    run(sys.executable, "-m", "venv", tools)
    run(tools / "bin" / "pip", "install", "--quiet", "build", "twine")
    # A clone, since a build takes what is in the directory.
    run("git", "clone", "--quiet", ROOT, tmp_path / "clone")
    run("env", "REQUIRE_LABEXTENSION=1", tools / "bin" / "python", "-m", "build", "-o", tmp_path / "dist", "clone")
    files = sorted((tmp_path / "dist").iterdir())
    assert [file.name.partition(__version__)[2] for file in files] == ["-py3-none-any.whl", ".tar.gz"]
    run(tools / "bin" / "twine", "check", "--strict", *files)
    for file in files:
        place = tmp_path / file.name.replace(".", "_")
        run(sys.executable, "-m", "venv", place)
        run(place / "bin" / "pip", "install", "--quiet", file)
        run(place / "bin" / "jupyter", "exec", "run", "-c", "print(1)")
        assert (place / "share/jupyter/labextensions/@jupyter-exec-ext/labextension/package.json").is_file()
