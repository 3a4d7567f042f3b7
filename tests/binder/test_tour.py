"""The tour, run from top to bottom on a JupyterLab that is configured as it is on Binder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_exec_ext import ExecClient
from tests.support.environments import ROOT
from tests.support.hosts import Host, clean_environment, running_host

TOUR = ROOT / "examples" / "tour.ipynb"
# What a visitor must see, in this order.
MUST_SHOW = (
    "jupyter_exec_ext 0",
    "ok hello\n 21",
    "x is still 20",
    "stream step 2",
    "timeout - ",
    "variables kept: True",
    "error - ZeroDivisionError division by zero",
    "0 6.283",
    "awaiting_approval - ",
    "ok the report stays\n edited - no files are removed here",
    "JupyterConnectionInfo.from_url(",
    "\n42",
    "0 sessions are left",
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    config = {"JUPYTER_CONFIG_PATH": str(ROOT / "binder" / "config")}
    with running_host("lab", tmp_path, env=config) as started:
        yield started


def test_the_tour_runs_from_top_to_bottom(host: Host) -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(env=clean_environment(host.home))
    shown = "".join(
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text" in output
    )
    at = 0
    for text in MUST_SHOW:
        assert text in shown[at:], f"{text!r} is not in {shown[at:]}"
        at = shown.index(text, at)
    with ExecClient(host.info) as client:
        (token,) = client.tokens.list(ended=True)
        assert token.policy == "tour"
        assert token.revoked_at is not None
