"""The sizing table shows the figures of the committed report, and the page names settings that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.isolation.sandbox import SandboxProvisioner
from jupyter_exec_ext.store.store import ExecStore
from tests.docs.admin import page
from tests.docs.blocks import ROOT

PAGE = page("sizing")
TOOL = str(ROOT / "tools" / "make_sizing.py")
updated_page: Any = runpy.run_path(TOOL)["updated_page"]


def test_table_is_made_from_the_report() -> None:
    assert updated_page(PAGE) == PAGE, "run python tools/make_sizing.py"


def test_table_with_another_figure_is_found() -> None:
    figure = re.search(r"\| ([\d.,]+) MB \|", PAGE)
    assert figure
    changed = PAGE.replace(figure[1], "1").replace(" GB |", " TB |")
    assert updated_page(changed) == PAGE != changed


def test_check_of_an_outdated_page_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = runpy.run_path(TOOL)
    outdated = tmp_path / "docs" / "sizing.md"
    outdated.parent.mkdir()
    outdated.write_text("".join(f"{names[mark]}\nold\n\n{names['END']}" for mark in ("BEGIN", "BEGIN_POOL")))
    check: Any = names["main"]
    monkeypatch.setitem(check.__globals__, "PAGE", outdated)
    monkeypatch.setitem(check.__globals__, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", [TOOL, "--check"])
    assert check() == 1
    assert capsys.readouterr().err == "docs/sizing.md has other numbers: run `python tools/make_sizing.py`\n"


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="made from the report"):
        updated_page("# Sizing\n")


def test_every_setting_exists() -> None:
    traits = {
        name
        for one in (ExecEngine, ExecPool, ExecStore, SandboxProvisioner)
        for name in one.class_trait_names(config=True)
    }
    known = traits | set(Policy.__dataclass_fields__)
    named = re.findall(r"`(?:Exec(?:Engine|Store)\.)?((?:max|pool|session|work)_\w+)`", PAGE)
    assert len(set(named)) > 8
    assert set(named) <= known
