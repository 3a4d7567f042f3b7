"""Install lines work in a clone until the package is released; one switch names the package everywhere after that."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from exec_docs import install_lines
from exec_docs.install_lines import FOR_CONTRIBUTORS, has_install_line_of_clone, take_package_from_index

from tests.docs.blocks import DOCS, ROOT
from tools.switch_install_lines import pages_of_users, switch_install_lines

# A looser search than that of the code under test.
_FROM_CLONE = re.compile(r"install(?! -e)[^\n`]* ['\"]?\.(?:\[[^\]]*\])?['\"]?(?:[\s`]|$)", re.MULTILINE)
#: Lines that need a clone also after the release.
_NEEDS_CLONE = re.compile(r"^.*\bbinder/start\b.*\n", re.MULTILINE)
CONF = (DOCS / "conf.py").read_text(encoding="utf-8")
IS_RELEASED = "package_is_released = True\n" in CONF


def page_as_built(name: str, text: str, *, is_released: bool) -> str:
    """Return a page as Sphinx gets it from the extension."""
    handlers: dict[str, Any] = {}
    app = SimpleNamespace(
        config=SimpleNamespace(package_is_released=is_released),
        add_config_value=lambda *_: None,
        connect=handlers.__setitem__,
    )
    install_lines.setup(app)
    source = [text]
    handlers["source-read"](app, name, source)
    return source[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pip install .\n", "pip install jupyter-exec-ext\n"),
        ("pip install . jupyterlab && jupyter lab\n", "pip install jupyter-exec-ext jupyterlab && jupyter lab\n"),
        ("pip install '.[langchain]' langgraph\n", "pip install 'jupyter-exec-ext[langchain]' langgraph\n"),
        ('python -m pip install ".[ag2,mcp]"\n', "python -m pip install 'jupyter-exec-ext[ag2,mcp]'\n"),
        ("pip install --quiet . && a .\n", "pip install --quiet jupyter-exec-ext && a .\n"),
        ("Run `pip install .`.\n", "Run `pip install jupyter-exec-ext`.\n"),
        ("pip install -e '.[test]'\n", "pip install -e '.[test]'\n"),
        ("pip install ./dist/a.whl -r requirements.txt\n", "pip install ./dist/a.whl -r requirements.txt\n"),
        ("docker build .\n", "docker build .\n"),
        ("pip install '.[a, b]'\n", "pip install 'jupyter-exec-ext[a, b]'\n"),
        ("pip install . && binder/start jupyter lab\n", "pip install . && binder/start jupyter lab\n"),
        ("pip install . -r binder/requirements.txt\n", "pip install . -r binder/requirements.txt\n"),
        ("pip install . && a b/none\n", "pip install jupyter-exec-ext && a b/none\n"),
        ("binder/start\npip install .\n", "binder/start\npip install jupyter-exec-ext\n"),
    ],
)
def test_install_command_of_a_clone_names_the_package(before: str, after: str) -> None:
    assert take_package_from_index(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("In a clone of this repository, with Python 3.10:", "With Python 3.10:"),
        ("In a clone of the\nrepository:", "Install the package:"),
        ("In a clone of this repository (it has the panel):", "Install the package (it has the panel):"),
        ("Install the adapter, in a clone of this repository:", "Install the adapter:"),
        ("Install it in a clone\nof this repository:", "Install it:"),
    ],
)
def test_words_for_a_clone_go_with_its_install_line(before: str, after: str) -> None:
    command = "\n\n```sh\npip install {}\n```\n"
    assert take_package_from_index(before + command.format(".")) == after + command.format("jupyter-exec-ext")
    other = f"{before}\n\n```sh\nls\n```\n"
    assert take_package_from_index(other) == other


def test_released_package_leaves_install_lines_of_clones_to_contributors() -> None:
    pages = sorted(DOCS.rglob("*.md"))
    found = 0
    for page in pages:
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        text = page.read_text(encoding="utf-8")
        built = page_as_built(name, text, is_released=True)
        if name.startswith(FOR_CONTRIBUTORS):
            assert built == text
            continue
        assert not _FROM_CLONE.search(_NEEDS_CLONE.sub("", built)), name
        assert _NEEDS_CLONE.findall(built) == _NEEDS_CLONE.findall(text)
        found += has_install_line_of_clone(text)
    assert IS_RELEASED or found


def test_unreleased_package_leaves_pages_as_they_are() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert page_as_built(page.relative_to(DOCS).with_suffix("").as_posix(), text, is_released=False) == text


def test_command_of_the_release_day_rewrites_files_and_switch_once(tmp_path: Path) -> None:
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "images"))
    changed = switch_install_lines(tmp_path)
    assert IS_RELEASED or {tmp_path / "README.md", tmp_path / "docs" / "conf.py"} <= set(changed)
    for page in pages_of_users(tmp_path):
        assert not _FROM_CLONE.search(_NEEDS_CLONE.sub("", page.read_text(encoding="utf-8"))), page
    assert "package_is_released = True\n" in (tmp_path / "docs" / "conf.py").read_text(encoding="utf-8")
    release = "contributing/testing.md"
    assert (tmp_path / "docs" / release).read_text() == (DOCS / release).read_text()
    assert switch_install_lines(tmp_path) == []


def test_switch_in_an_unknown_form_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "conf.py").write_text("package_is_released = bool()\n")
    (tmp_path / "README.md").write_text("pip install .\n")
    with pytest.raises(ValueError, match=r"has no line 'package_is_released = False'"):
        switch_install_lines(tmp_path)
    assert (tmp_path / "README.md").read_text() == "pip install .\n"
