"""A session as a notebook: valid, complete, and saved where it is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
import requests

from jupyter_exec_ext.errors import Conflict, FileNotFound, InvalidRequest
from tests.support.hosts import Host

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


@pytest.mark.owner
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


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a.ipynb/", "ending in '.ipynb'"),
        ("a\0.ipynb", "ending in '.ipynb'"),
        ("\ud800.ipynb", "ending in '.ipynb'"),
        (".hidden.ipynb", "begins with a dot"),
        (".ipynb", "begins with a dot"),
        (".hidden/a.ipynb", "begins with a dot"),
        ("../a.ipynb", "begins with a dot"),
        ("a//b.ipynb", "part that is empty"),
        ("a" * 250 + ".ipynb", "at most 240 bytes"),
        ("é" * 118 + ".ipynb", "at most 240 bytes"),
        ("a" * 241 + "/a.ipynb", "at most 240 bytes"),
    ],
)
@pytest.mark.owner
def test_a_notebook_is_saved_only_where_it_can_be_found_again(session: Any, path: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        session.save_notebook_on_server(path)


@pytest.mark.owner
def test_a_place_that_takes_no_notebook_is_refused_with_the_reason(session: Any, host: Host) -> None:
    if host.is_gateway:
        pytest.skip("it keeps no notebooks")
    root = host.home / "root"
    (root / "directory.ipynb").mkdir(exist_ok=True)
    (root / "file").touch()
    if not (root / "loop").is_symlink():
        (root / "loop").symlink_to("loop")
        (root / "nowhere.ipynb").symlink_to("nowhere/x")
    for path in ("none/a.ipynb", "file/a.ipynb", "loop/a.ipynb", "/".join(["x" * 200] * 4) + "/a.ipynb"):
        with pytest.raises(Conflict, match="has no directory"):
            session.save_notebook_on_server(path)
    with pytest.raises(Conflict, match="already"):
        session.save_notebook_on_server("directory.ipynb")
    with pytest.raises(FileNotFound, match=r"the server has no file 'nowhere\.ipynb'"):
        session.save_notebook_on_server("nowhere.ipynb")
    # The longest name that is taken leaves room for that of Jupyter's checkpoint.
    longest = f"{session.id:x<234}.ipynb"
    (root / longest).unlink(missing_ok=True)
    assert session.save_notebook_on_server(longest) == longest
