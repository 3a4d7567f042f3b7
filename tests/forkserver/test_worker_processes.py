"""Kernels in worker processes that multiprocessing has forked, before and after the program itself has used one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.full import only_in_full
from tests.support.hosts import clean_environment
from tests.support.kernelspecs import add_kernelspec

# Each worker goes on with the parent's event loop, as nbclient and jupyter_client's blocking calls do.
# The kernels' sockets are files: workers that choose TCP ports at the same time can choose the same one, since
# jupyter_client lets go of a port before the kernel binds it. One of 300 runs ended by that.
_PROGRAM = """
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

def run(number):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"print({number})")])
    kernel = AsyncKernelManager(kernel_name="under-test", transport="ipc", ip=f"kernel-of-{os.getpid()}-{number}")
    NotebookClient(notebook, kernel, timeout=60, startup_timeout=60).execute()
    return notebook.cells[0].outputs[0].text

if __name__ == "__main__":
    method, first, workers = sys.argv[1], sys.argv[2] == "first", int(sys.argv[3])
    if first:
        assert run(0) == "0\\n"
    with ProcessPoolExecutor(workers, mp_context=get_context(method)) as pool:
        print(*(int(said) for said in pool.map(run, range(workers), timeout=60)))
    assert run(9) == "9\\n"
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("provisioner", "method", "first", "workers"),
    [
        ("forkserver-provisioner", "fork", "first", 3),
        pytest.param("sandbox-provisioner", "fork", "first", 2, marks=[pytest.mark.needs("sandbox"), only_in_full]),
        pytest.param("landlock-provisioner", "fork", "first", 2, marks=[pytest.mark.needs("Landlock"), only_in_full]),
        pytest.param("forkserver-provisioner", "fork", "not", 1, marks=only_in_full),
        pytest.param("landlock-provisioner", "spawn", "first", 1, marks=pytest.mark.needs("Landlock")),
    ],
)
def test_kernels_run_in_worker_processes(
    tmp_path: Path, provisioner: str, method: str, first: str, workers: int
) -> None:
    add_kernelspec(tmp_path, "under-test", provisioner)
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, str(program), method, first, str(workers)],
        env=clean_environment(tmp_path) | {"PYTHONPATH": os.getcwd()},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.split() == [str(number) for number in range(workers)], done.stderr
    assert done.returncode == 0, done.stderr
