"""Each adapter has all that belongs to one; and the runner's choices. The adapters' own tests are run by `__main__`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.adapters.__main__ import FRAMEWORKS, SAME_TESTS, pip_arguments
from tests.adapters.conftest import ADAPTERS, TESTS, frameworks_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = TESTS.parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NAMES = sorted(path.stem for path in ADAPTERS.glob("[!_]*.py"))


def extra_of(name: str) -> str:
    """Return the name of an adapter's extra; pip 23.2, for one, finds none by a name with underscores."""
    return name.replace("_", "-")


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_is_complete(name: str) -> None:
    assert name in FRAMEWORKS
    assert extra_of(name) in EXTRAS
    assert (TESTS / name / "__init__.py").is_file()
    assert list((TESTS / name).glob("test_*.py"))
    # Not called as the framework is: it would be found in its place.
    assert (ROOT / "examples" / f"{name}_agent.py").is_file()
    text = (ROOT / "docs" / "frameworks" / f"{extra_of(name)}.md").read_text()
    assert f"jupyter_exec_ext.adapters.{name}" in text
    assert f"../examples/{name}_agent.py" in text
    assert f"[{extra_of(name)}]'" in text


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_has_tests(name: str) -> None:
    assert SAME_TESTS.get(name, name) in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_extra_has_a_lower_bound_and_ends_before_the_next_major_release(name: str) -> None:
    for requirement in EXTRAS[extra_of(name)]:
        assert ">=" in requirement and ",<" in requirement, requirement


def test_pip_arguments_name_extras_and_requirements() -> None:
    assert pip_arguments(["one", "other>=2"], {"one": [], "two": []})[:3] == ["-e", ".[one]", "other>=2"]
    assert pip_arguments(["other>=2"], {"one": []})[:3] == ["-e", ".", "other>=2"]


def test_the_packages_an_adapter_imports_are_found(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter.py"
    adapter.write_text(
        "from __future__ import annotations\nimport one.two\nfrom three.four import x\nfrom ..client import y\n"
    )
    assert frameworks_of(adapter) == {"__future__", "one", "three"}
