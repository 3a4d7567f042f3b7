"""The versions on the page are those that the package declares and the tests have."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from jupyter_exec_ext.isolation.common import isolation_support
from jupyter_exec_ext.isolation.landlock import ruleset
from tests.docs.admin import page
from tests.docs.blocks import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = page("compatibility")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: Extras that are no agent framework's.
_OTHER_EXTRAS = {"azure", "docker", "hub", "lab", "network", "docs", "benchmarks", "test"}


def rows(title: str) -> list[tuple[str, str]]:
    """Return the two cells of each row of a section's table, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)[1:]


def test_python_versions_are_the_classifiers() -> None:
    classified = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert dict(rows("Python and systems"))["Python"] == ", ".join(classified)
    assert PROJECT["requires-python"] == f">={classified[0]}"


def test_package_versions_are_the_declared_lower_bounds() -> None:
    declared = [*PROJECT["dependencies"], *EXTRAS["lab"], *EXTRAS["test"]]
    bounds = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(declared), re.MULTILINE))
    table = rows("Server packages")
    assert len(table) == 6
    for name, version in table:
        assert bounds[name.strip("`")] == version, name


def test_every_framework_has_its_extra_with_its_bounds() -> None:
    expected = {f"`{name}`": f"`{needs[0]}`" for name, needs in EXTRAS.items() if name not in _OTHER_EXTRAS}
    assert dict(rows("Agent frameworks")) == expected


def test_isolation_needs_what_the_page_says() -> None:
    table = dict(rows("Python and systems"))
    assert ruleset.MIN_ABI == 6 and "6.12" in table["`landlock` isolation"]
    filters = {path.name for path in (Path(isolation_support.__file__).parent / "filters").iterdir()}
    assert {name.partition(".")[0].rpartition("-")[2] for name in filters} == {"x86_64", "aarch64"}
