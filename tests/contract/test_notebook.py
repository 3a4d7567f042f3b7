"""A session as a notebook: valid, complete, and saved where it is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
import requests

from jupyter_exec_ext.errors import Conflict, InvalidRequest
from tests.hosts import Host

CODES = {
    "x = 1\nprint('café \\udce9', x)": {},
    "from IPython.display import display, HTML\ndisplay(HTML('<b>b</b>'))\nx": {},
    "1/0": {},
    "echo shell": {"language": "bash"},
}


@pytest.fixture
def told(fresh: Any) -> Any:
    for code, options in CODES.items():
        fresh.run(code, **options)
    return fresh


def test_a_session_is_a_valid_notebook(told: Any, tmp_path: Path) -> None:
    told.save_notebook(tmp_path / "told.ipynb")
    notebook = nbformat.read(tmp_path / "told.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells] == [*list(CODES)[:3], "%%bash\necho shell"]
    kinds = [[output.output_type for output in cell.outputs] for cell in notebook.cells]
    assert kinds[1:] == [["display_data", "execute_result"], ["error"], ["stream"]]
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.cells[2].metadata.jupyter_exec_ext.state == "error"
    assert list(tmp_path.iterdir()) == [tmp_path / "told.ipynb"]


def test_the_notebook_of_an_ended_session_is_still_there(client: Any) -> None:
    with client.session() as session:
        session.run("print('kept')")
    assert session.notebook()["cells"][0]["outputs"][0]["text"] == "kept\n"


def test_a_notebook_is_saved_on_the_server_that_keeps_some(told: Any, host: Host) -> None:
    path = f"{told.id}.ipynb"
    if host.is_gateway:
        with pytest.raises(Conflict, match="no notebooks"):
            told.save_notebook_on_server(path)
        return
    assert told.save_notebook_on_server(path) == path
    saved = requests.get(f"{host.info.url}api/contents/{path}", headers=host.info.auth_headers, timeout=30).json()
    assert len(saved["content"]["cells"]) == len(CODES)
    assert saved["content"]["cells"][0]["outputs"][0]["text"] == "café ? 1\n"
    with pytest.raises(Conflict, match="already"):
        told.save_notebook_on_server(path)
    with pytest.raises(InvalidRequest, match="ipynb"):
        told.save_notebook_on_server("notes.txt")
