"""The site is built without a warning, and its pages are there. CI installs what that takes in a step of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_exec_ext import __version__
from tests.docs.blocks import ROOT, pages

BUILD = "python -m sphinx -W --keep-going -n docs"
# What a browser fetches by itself: everything but links.
_FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]*)\"")
_HAS_SPHINX = all(
    importlib.util.find_spec(name) for name in ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_copybutton")
)


def test_the_command_is_documented_and_run_by_ci() -> None:
    assert f"pip install -e '.[docs]'\n{BUILD} docs/_build/html" in (ROOT / "CONTRIBUTING.md").read_text()
    ci = (ROOT / ".ci" / "run").read_text()
    assert "pip install --quiet -e '.[test,docs]'\n" in ci
    assert "python -m pytest tests/docs/test_site.py " in ci


@pytest.mark.skipif(not _HAS_SPHINX, reason="pip install -e '.[docs]' brings what builds the site")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, *BUILD.split()[1:], str(tmp_path / "html"), "-q", "-d", str(tmp_path / "doctrees")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    for page in pages():
        if page != "README.md":
            made = tmp_path / "html" / Path(page).relative_to("docs").with_suffix(".html")
            assert made.is_file(), page
    for page, words in {
        "reference/http": "/sessions/{session_id}/restart",
        "reference/settings": "c.ExecEngine.max_sessions",
        "reference/commands": "jupyter exec approve watch",
        "reference/python": "execute_code_blocks",
        "about/changes": "Unreleased",
    }.items():
        assert words in (tmp_path / "html" / f"{page}.html").read_text(encoding="utf-8"), page
    built = [page for page in (tmp_path / "html").rglob("*.html") if "_static" not in page.parts]
    assert len(built) > 40
    for made in built:
        text = made.read_text(encoding="utf-8")
        assert not _FETCHED.findall(text), made.name
        assert "copybutton.js" in text, made.name
    start = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert f"jupyter_exec_ext {__version__}</p>" in start
    assert '<link rel="icon" href="_static/logo.svg"' in start
    assert re.search(r'<img[^>]* src="_images/terminal\.svg"', start)
    assert re.search(r'<section id="start-here">\s*<h2>.*</h2>\s*<ul class="simple">', start)
    assert "fa-code-branch" not in start


def test_copy_buttons_leave_out_prompts() -> None:
    found = re.search(r'^copybutton_prompt_text = r"(.*)"$', (ROOT / "docs" / "conf.py").read_text(), re.MULTILINE)
    assert found is not None
    for prompt in ("you$ ", "agent$ ", "$ ", ">>> ", "... "):
        assert re.fullmatch(found[1], prompt), prompt
    assert not re.match(found[1], 'echo "$HOME"')
