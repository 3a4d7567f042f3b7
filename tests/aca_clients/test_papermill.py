"""papermill, with kernels that are sessions of the endpoint."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
import requests
from nbclient.exceptions import CellTimeoutError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from papermill.exceptions import PapermillExecutionError

KERNEL = "aca"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CELLS = (
    "print(name * factor)",
    "[factor * 7, options]",
    f"from IPython.display import Image\nimport base64\nImage(base64.b64decode('{PICTURE}'))",
    "from IPython.display import HTML\ndisplay(HTML('<b>bold</b>'), display_id='shown')",
    "import sys\nfor n in range(3):\n    print(n)\nprint('beside', file=sys.stderr)",
    "open('kept.txt', 'w').write(name)\nopen('/mnt/data/kept.txt').read()",
)


@pytest.fixture(autouse=True)
def _kernelspec(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the kernelspec as one would, for Jupyter directories of the test's own."""
    for name in ("DATA", "RUNTIME", "CONFIG"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    command = [str(Path(sys.executable).with_name("jupyter-exec")), "kernelspec", "install", "--aca", endpoint]
    subprocess.run([*command, "--credential", "env:EXEC_TEST_ACA_TOKEN"], check=True, timeout=60)


def written(directory: Path, *cells: str) -> Path:
    """Write a notebook with parameters and some cells; it names a kernel that is not there."""
    parameters = new_code_cell("name, factor, options = 'a', 1, None", metadata={"tags": ["parameters"]})
    content = new_notebook(cells=[new_markdown_cell("# Title"), parameters, *map(new_code_cell, cells)])
    content.metadata["kernelspec"] = {"name": "of-somebody-else", "display_name": "Theirs", "language": "python"}
    path = directory / "in.ipynb"
    nbformat.write(content, path)
    return path


def outputs_behind_parameters(notebook: NotebookNode) -> list[list[dict[str, Any]]]:
    """Return the outputs of each cell below those that hold parameters."""
    tags = [set(cell.metadata.get("tags", [])) for cell in notebook.cells]
    begin = tags.index({"injected-parameters"}) + 1
    return [[dict(output) for output in cell.outputs] for cell in notebook.cells[begin:]]


def check_outputs(notebook: NotebookNode) -> None:
    """See to it that every cell has what it has on a kernel of this machine."""
    printed, value, picture, shown, streams, file = outputs_behind_parameters(notebook)
    assert [(o["name"], o["text"]) for o in printed] == [("stdout", "ababab\n")]
    assert [o["data"]["text/plain"] for o in value] == ["[21, {'deep': [1.5, True, None]}]"]
    assert value[0]["output_type"] == "execute_result"
    assert base64.b64decode(picture[0]["data"]["image/png"]) == base64.b64decode(PICTURE)
    assert (shown[0]["output_type"], shown[0]["data"]["text/html"]) == ("display_data", "<b>bold</b>")
    assert [(o["name"], o["text"]) for o in streams] == [("stdout", "0\n1\n2\n"), ("stderr", "beside\n")]
    assert [o["data"]["text/plain"] for o in file] == ["'ab'"]
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert notebook.metadata.papermill.exception is None


PARAMETERS = {"name": "ab", "factor": 3, "options": {"deep": [1.5, True, None]}}


def sessions(endpoint: str) -> list[str]:
    """Return the ids of the sessions that the token has at the pool."""
    url = f"{endpoint.partition('exec/aca')[0]}exec/v1/sessions"
    headers = {"Authorization": f"Bearer {os.environ['EXEC_TEST_ACA_TOKEN']}"}
    answer = requests.get(url, headers=headers, timeout=30)
    answer.raise_for_status()
    return [session["id"] for session in answer.json()["sessions"]]


def test_a_notebook_with_parameters_is_executed(tmp_path: Path) -> None:
    source, target = written(tmp_path, *CELLS), tmp_path / "out.ipynb"
    papermill.execute_notebook(source, target, PARAMETERS, kernel_name=KERNEL, progress_bar=False, log_output=True)
    check_outputs(nbformat.read(target, as_version=4))
    assert os.environ["EXEC_TEST_ACA_TOKEN"] not in target.read_text()


def test_the_command_does_the_same_and_leaves_no_session(endpoint: str, tmp_path: Path) -> None:
    source, target = written(tmp_path, *CELLS), tmp_path / "out.ipynb"
    before = sessions(endpoint)
    given = ["-k", KERNEL, "-p", "name", "ab", "-p", "factor", "3", "-y", "options: {deep: [1.5, true, null]}"]
    command = [sys.executable, "-m", "papermill", str(source), str(target), *given]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    check_outputs(nbformat.read(target, as_version=4))
    assert sessions(endpoint) == before  # the process has waited for that


def test_an_error_ends_it_and_is_in_the_notebook(tmp_path: Path) -> None:
    source, target = written(tmp_path, "print('before')", "{}[name]", "print('behind')"), tmp_path / "out.ipynb"
    with pytest.raises(PapermillExecutionError, match="KeyError: 'ab'") as raised:
        papermill.execute_notebook(source, target, PARAMETERS, kernel_name=KERNEL, progress_bar=False)
    assert (raised.value.ename, raised.value.evalue) == ("KeyError", "'ab'")
    notebook = nbformat.read(target, as_version=4)
    assert notebook.metadata.papermill.exception is True
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    before, error, behind = outputs[-3:]
    assert [o.text for o in before] == ["before\n"]
    assert [(o.output_type, o.ename, o.evalue) for o in error] == [("error", "KeyError", "'ab'")]
    assert "{}[name]" in "".join(error[0].traceback)
    assert behind == []


def test_a_cell_that_takes_too_long_ends_it(endpoint: str, tmp_path: Path) -> None:
    """papermill interrupts the kernel then, which is not possible; ending the session is."""
    source, target = written(tmp_path, "import time; time.sleep(100)", "print('behind')"), tmp_path / "out.ipynb"
    before = sessions(endpoint)
    with pytest.raises(CellTimeoutError):
        papermill.execute_notebook(
            source, target, PARAMETERS, kernel_name=KERNEL, progress_bar=False, execution_timeout=2
        )
    outputs = [cell.outputs for cell in nbformat.read(target, as_version=4).cells if cell.cell_type == "code"]
    assert outputs[-1] == []
    for thread in threading.enumerate():  # which ends when the session has ended
        if thread.name == "aca-kernels":
            thread.join(70)
    assert sessions(endpoint) == before
