"""``%%exec``, and what an execution shows of itself, in a real notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_exec_ext.client.server_profiles import ServerProfile, add_profile

DRAW = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"


@pytest.fixture
def run_cells(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run cells of one notebook; return the outputs of each."""
    info = hosts["gateway"].info
    monkeypatch.setenv("JUPYTER_EXEC_SERVER", info.url)
    monkeypatch.setenv("JUPYTER_TOKEN", info.token)

    def run(*cells: str) -> list[list[Any]]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        NotebookClient(notebook, timeout=120, allow_errors=True).execute()
        return [cell.outputs for cell in notebook.cells]

    return run


def printed(outputs: list[Any], name: str = "stdout") -> str:
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def test_cell_runs_on_the_server_and_keeps_its_variables(run_cells: Any) -> None:
    _, first, second, here, failed, shown = run_cells(
        "%load_ext jupyter_exec_ext",
        "%%exec\nimport os; x = 42; print('hello')\nos.getpid()",
        "%%exec --timeout 1m --out result\nprint(x); x + 1",
        "import os; print('x' in globals(), os.getpid(), repr(result), result.text)",
        "%%exec\n1 / 0",
        "%%exec\nfrom IPython.display import HTML\nHTML('<script>alert(1)</script><b>bold</b>')",
    )
    assert printed(first) == "hello\n"
    (value,) = [output for output in first if output.output_type == "display_data"]
    assert printed(second) == "42\n"
    is_here, pid, *_ = printed(here).split()
    assert is_here == "False"
    assert pid != value.data["text/plain"]
    assert printed(here).endswith("'43'> 43\n")
    assert "ZeroDivisionError: division by zero" in printed(failed, "stderr")
    (page,) = [output.data["text/html"] for output in shown if output.output_type == "display_data"]
    assert page.startswith("<iframe sandbox srcdoc=")
    assert "<script" not in page


def test_server_is_given_by_the_name_of_a_profile(
    run_cells: Any, hosts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    info = hosts["gateway"].info
    (tmp_path / "token").write_text(info.token)
    add_profile(ServerProfile("lab", info.url, token_file=str(tmp_path / "token")))
    monkeypatch.delenv("JUPYTER_EXEC_SERVER")
    monkeypatch.delenv("JUPYTER_TOKEN")
    _, named, unknown, wrong_time = run_cells(
        "%load_ext jupyter_exec_ext",
        "%%exec --server lab\nprint('on lab')",
        "%%exec --server nowhere\n1",
        "%%exec --timeout soon\n1",
    )
    assert printed(named) == "on lab\n"
    assert "nowhere" in printed(unknown, "stderr")
    assert "invalid duration (such as 90, 90s, 30m, 8h or 30d) value: 'soon'" in printed(wrong_time, "stderr")


def test_wrong_option_is_one_line_and_ends_no_kernel(run_cells: Any) -> None:
    _, wrong, after = run_cells("%load_ext jupyter_exec_ext", "%%exec --sanbox\n1", "print('alive')")
    assert "unrecognized arguments: --sanbox" in printed(wrong, "stderr")
    assert "%%exec? shows the options" in printed(wrong, "stderr")
    assert printed(after) == "alive\n"


def test_execution_and_lists_show_themselves(run_cells: Any) -> None:
    _, shown, table, failed = run_cells(
        "from jupyter_exec_ext import ExecClient; client = ExecClient(); session = client.session()",
        f"session.run({DRAW!r})",
        "client.list_sessions()",
        "session.run('print(1)\\n1 / 0')",
    )
    (drawn,) = shown
    assert '<img src="data:image/png;base64,' in drawn.data["text/html"]
    assert len(drawn.data["text/plain"]) < 1000
    assert "<table>" in table[0].data["text/html"]
    assert "ZeroDivisionError" in failed[0].data["text/html"]
