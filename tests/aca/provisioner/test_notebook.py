"""A notebook gives the same on a session of a pool as on this machine, cell by cell."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.support.full import only_in_full
from tests.support.hosts import Host

from ...isolation.test_conformance import outcomes
from .pools import VARIABLE, add_aca_kernelspec, add_plain_kernelspec

# A pixel.
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

CELLS = {
    "text": "print('hello')\nprint('wörld \\U0001f600', end='')",
    "both streams, in order": "import sys\nprint('a'); print('b', file=sys.stderr); print('c')",
    "a value": "x = 41\nx + 1",
    "the values before": "_, _3 + 1, Out[3], In[3]",
    "no value": "y = 1;",
    "nothing": "",
    "an error": "def f(n):\n    return 1 / n\nf(0)",
    "an error of grammar": "def (:",
    "code after an error": "try:\n    f(0)\nexcept ZeroDivisionError as error:\n    print(error)",
    "a picture": f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{_PNG}'))",
    "a table": "import pandas as pd\npd.DataFrame({'a': [1, 2.5], 'b': ['x', None]})",
    "part of it": "pd.DataFrame({'a': range(100)}).describe()",
    "displays": "from IPython.display import HTML, JSON, Markdown, display\ndisplay(HTML('<b>x</b>'), JSON([1]))",
    "a display that changes": "h = display(Markdown('*1*'), display_id='q')\nh.update(Markdown('*2*'))",
    "cleared output": "from IPython.display import clear_output\nprint(1)\nclear_output()\nprint(2)",
    "a progress bar": (
        "from tqdm import tqdm\n"
        "for _i in tqdm(range(5), file=sys.stdout, bar_format='{n}/{total}', mininterval=0): pass"
    ),
    "input": "input('name? ')",
    "a password": "import getpass\ngetpass.getpass()",
    "long output": "for number in range(100_000): print(number)",
    "output that cannot be packed": "import random\nrandom.seed(1)\nprint('%x' % random.getrandbits(8_000_000))",
    "magics": "%lsmagic\n%who_ls int",
    "a cell magic": "%%bash\necho out; echo err >&2",
    "a shell": "!echo shell",
    "captured": "%%capture kept\nprint('seen later')",
    "what was captured": "kept.stdout",
    "awaited": "import asyncio\nawait asyncio.sleep(0.01)\nasync def g(): return 7\nawait g()",
    "a task": "task = asyncio.create_task(g())",
    "a task's end": "await task",
    "logging": "import logging\nlogging.basicConfig(level=logging.INFO)\nlogging.getLogger('x').warning('careful')",
    "the same log later": "logging.getLogger('x').warning('again')",
    "a warning": "import warnings\nwarnings.showwarning = lambda m, *_: print('warned', m)\nwarnings.warn('w')",
    "a thread": "import threading\nt = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()",
    "history": "%history 1-3",
    "the cell before": "print(_i)",
    "help": "len?",
    "surrogates": "print('\\udce4')",
}


def run(kernel_name: str) -> list[tuple[int, list[NotebookNode]]]:
    notebook = new_notebook(cells=[new_code_cell(code) for code in CELLS.values()])
    NotebookClient(notebook, kernel_name=kernel_name, allow_errors=True, timeout=60).execute()
    return [(cell.execution_count, joined(cell.outputs)) for cell in notebook.cells]


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Put together what was written to each stream between two other outputs.

    A kernel sends it in parts, and one of this machine does not keep the order of the two streams.
    """
    found: list[NotebookNode] = []
    for is_stream, group in groupby(outputs, lambda output: output.output_type == "stream"):
        streams: dict[str, NotebookNode] = {}
        for output in group:
            if not is_stream:
                found.append(output)
            elif output.name in streams:
                streams[output.name].text += output.text
            else:
                streams[output.name] = output
        found += [streams[name] for name in sorted(streams)]
    return found


@pytest.mark.parametrize("api_version", [pytest.param("2024-02-02-preview", marks=only_in_full), "2025-10-02-preview"])
def test_a_notebook_gives_the_same(
    server: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api_version: str
) -> None:
    monkeypatch.setenv(VARIABLE, server.info.token or "")
    add_aca_kernelspec(os.environ["JUPYTER_DATA_DIR"], "remote", server, api_version=api_version)
    add_plain_kernelspec("local")
    monkeypatch.setenv("HOME", str(server.home))  # as the server's: tracebacks shorten paths below it
    monkeypatch.chdir(tmp_path)
    there, here = run("remote"), run("local")
    assert len(there) >= 20
    for what, theirs, ours in zip(CELLS, there, here, strict=True):
        assert (what, theirs) == (what, ours)


@only_in_full
def test_a_session_conforms_as_the_plain_kernel(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, server.info.token or "")
    add_aca_kernelspec(os.environ["JUPYTER_DATA_DIR"], "remote", server)
    add_plain_kernelspec("local")
    local = outcomes("local")
    assert list(local.values()).count("passed") >= 12, local
    assert outcomes("remote") == local
