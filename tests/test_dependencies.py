"""Lower bounds of dependencies: no release with a published advisory that concerns it can be installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
# The first release with the fixes, and the last advisories that it fixes.
FIXED = {
    "aiohttp": ("3.14.5", "GHSA-2g87-pp6c-29x5, GHSA-5wr8-gcqf-gqf3"),
    "jupyter-core": ("5.8.1", "CVE-2025-30167"),
    "jupyter-server": ("2.20.0", "CVE-2026-44727"),
    "jupyterlab": ("4.6.4", "CVE-2026-102830, CVE-2026-102831"),
    "langchain-core": ("1.3.3", "CVE-2026-44843"),
    "notebook": ("7.6.3", "CVE-2026-40171, CVE-2026-102831"),
    "mcp": ("1.23.0", "CVE-2025-66416"),
    "requests": ("2.33.0", "CVE-2024-47081, CVE-2026-25645"),
    "tornado": ("6.5.9", "CVE-2026-82397, CVE-2026-103261"),
    "tqdm": ("4.66.3", "CVE-2024-34062"),
    "urllib3": ("2.8.0", "CVE-2026-44432, CVE-2026-97687, CVE-2026-97689"),
}


def requirements() -> Iterator[tuple[str, Requirement]]:
    """Yield every requirement with where it is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from (("dependencies", Requirement(text)) for text in project["dependencies"])
    for extra, texts in project["optional-dependencies"].items():
        yield from ((f"extra {extra}", Requirement(text)) for text in texts)
    for line in (ROOT / "binder" / "requirements.txt").read_text().splitlines():
        if re.match(r"[A-Za-z]", line):
            yield "binder", Requirement(line)
    for dockerfile in sorted((ROOT / "containers").glob("*Dockerfile")):
        for text in re.findall(r'"([A-Za-z][\w.-]*[<>=~][^"$]*)"', dockerfile.read_text()):
            yield dockerfile.name, Requirement(text)


FOUND = list(requirements())


def lower_bound(requirement: Requirement) -> Version:
    bounds = [Version(one.version) for one in requirement.specifier if one.operator in (">=", "==", "~=")]
    assert bounds, f"{requirement} has no lower bound"
    return max(bounds)


@pytest.mark.parametrize("name", FIXED)
def test_no_release_with_an_advisory_can_be_installed(name: str) -> None:
    fixed, advisories = FIXED[name]
    bounds = {where: lower_bound(found) for where, found in FOUND if canonicalize_name(found.name) == name}
    assert bounds
    for where, bound in bounds.items():
        assert bound >= Version(fixed), f"{name} in {where}: {advisories}"


def test_every_dependency_of_the_package_has_a_lower_bound() -> None:
    for where, requirement in FOUND:
        if where == "dependencies":
            lower_bound(requirement)


def test_what_is_tested_is_what_can_be_installed() -> None:
    for where, requirement in FOUND:
        if where == "dependencies" and (requirement.marker is None or requirement.marker.evaluate()):
            assert requirement.specifier.contains(version(requirement.name), prereleases=True), requirement


def test_the_containers_and_the_binder_are_looked_at() -> None:
    assert {"binder", "lab.Dockerfile"} <= {where for where, _ in FOUND}
