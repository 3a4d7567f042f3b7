"""The tour, run from top to bottom on a JupyterLab that is configured as it is on Binder."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import ExecutionState
from tests.support.environments import ROOT
from tests.support.full import only_in_full
from tests.support.hosts import Host, clean_environment, running_host

TOUR = ROOT / "examples" / "tour.ipynb"
CONFIG = ROOT / "binder" / "config" / "jupyter_server_config.json"
SECONDS = 120.0
Decide = Callable[[ExecClient, str], object]
# What a visitor must see, in this order; the decision stands between the two.
BEFORE = (
    "jupyter_exec_ext 0",
    "ok hello\n 21",
    "x is still 20",
    "stream step 2",
    "timeout - ",
    "variables kept: True",
    "error - ZeroDivisionError division by zero",
    "<td>530</td>",
    "<img ",
    "0 6.283",
    "isolation: ",
    "awaiting_approval - ",
)
AFTER = ("JupyterConnectionInfo.from_url(", "\n42", "0 sessions are left")


def approve(client: ExecClient, execution_id: str) -> None:
    client.approvals.approve(execution_id)


def edit(client: ExecClient, execution_id: str) -> None:
    client.approvals.approve(execution_id, code="print('the report stays')")


def reject(client: ExecClient, execution_id: str) -> None:
    client.approvals.reject(execution_id, reason="no files are removed here")


@contextmanager
def person(host: Host, decide: Decide) -> Iterator[None]:
    """Decide about the first execution that waits for it, while the block runs."""
    listening = threading.Event()

    def follow() -> None:
        with ExecClient(host.info) as client:
            for change in client.events():
                listening.set()
                execution = change.execution
                if execution is not None and execution.state is ExecutionState.AWAITING_APPROVAL:
                    decide(client, execution.id)
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert listening.wait(SECONDS)
    yield
    thread.join(SECONDS)
    assert not thread.is_alive()


def run_tour(host: Host) -> str:
    """Run the notebook; return its text and HTML, in order, also that of frames."""
    notebook = nbformat.read(TOUR, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute(env=clean_environment(host.home))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") + unescape(output.get("data", {}).get("text/html", "")) for output in outputs)


def check_shown(shown: str, decision: str) -> None:
    at = 0
    for text in (*BEFORE, decision, *AFTER):
        assert text in shown[at:], f"{text!r} is not in {shown[at:]}"
        at = shown.index(text, at) + len(text)


@pytest.mark.parametrize(
    ("decide", "shown"),
    [
        pytest.param(approve, "ok - rm -rf the_report", id="approves"),
        pytest.param(edit, "ok - the report stays", id="edits", marks=only_in_full),
        pytest.param(reject, "rejected - rejected by", id="rejects", marks=only_in_full),
    ],
)
@only_in_full
def test_tour_shows_what_a_person_decides(decide: Decide, shown: str, tmp_path: Path) -> None:
    with running_host("lab", tmp_path, env={"JUPYTER_CONFIG_PATH": str(CONFIG.parent)}) as host:
        with person(host, decide):
            check_shown(run_tour(host), shown)
        with ExecClient(host.info) as client:
            (token,) = client.tokens.list(ended=True)
            assert token.policy == "tour"
            assert token.revoked_at is not None


@only_in_full
def test_tour_goes_on_if_nobody_decides(tmp_path: Path) -> None:
    config = json.loads(CONFIG.read_text())
    config["ExecEngine"]["policies"]["tour"]["approval"]["timeout_seconds"] = 3
    (tmp_path / "binder").mkdir()
    (tmp_path / "binder" / CONFIG.name).write_text(json.dumps(config))
    with running_host("lab", tmp_path, env={"JUPYTER_CONFIG_PATH": str(tmp_path / "binder")}) as host:
        check_shown(run_tour(host), "You did not decide in time")


def test_tour_names_the_time_that_the_policy_leaves_for_a_decision() -> None:
    approval = json.loads(CONFIG.read_text())["ExecEngine"]["policies"]["tour"]["approval"]
    assert approval["timeout_seconds"] == 120
    assert TOUR.read_text().count("two minutes") == 2


def test_every_link_of_the_tour_leads_to_a_page() -> None:
    cells = nbformat.read(TOUR, as_version=4).cells
    links = re.findall(r"\]\(([^)]+)\)", "".join(cell.source for cell in cells if cell.cell_type == "markdown"))
    assert len(links) > 5
    assert [link for link in links if not (TOUR.parent / link).is_file()] == []
    assert cells[-1].source.startswith("## Next steps\n")
