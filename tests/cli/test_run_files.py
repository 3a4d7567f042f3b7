"""Files that ``jupyter exec run`` takes: notebooks, languages by suffix, encodings, and variables for a run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jupyter_exec_ext.cli.code_source import read_source
from jupyter_exec_ext.cli.kernel_choice import choose_kernel
from jupyter_exec_ext.cli.main import build_parser
from jupyter_exec_ext.cli.messages import UsageError
from jupyter_exec_ext.client import ExecClient
from tests.cli.test_cli import at, jupyter_exec
from tests.support.hosts import Host, running_host

MISSING = {"name": "mine", "display_name": "Mine", "language": "python"}


@pytest.fixture
def server(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


def run(tmp_path: Path, server: Host, *args: str) -> subprocess.CompletedProcess[str]:
    return jupyter_exec(tmp_path, "run", *args, "--server", server.info.url, **at(server))


def code_cell(source: str | list[str], **metadata: Any) -> dict[str, Any]:
    old = {"output_type": "stream", "name": "stdout", "text": "old"}
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": [old], "execution_count": 9}


def write_notebook(path: Path, *cells: dict[str, Any], **metadata: Any) -> None:
    path.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))


def read_notebook(path: Path) -> Any:
    """Return a notebook, checked by nbformat."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


# --- notebooks ---


def test_notebook_runs_its_code_cells_in_one_session(tmp_path: Path, server: Host) -> None:
    text = {"cell_type": "markdown", "source": "print('text')", "metadata": {}}
    skipped = code_cell("print('skipped')", tags=["skip-execution"])
    write_notebook(tmp_path / "a.ipynb", code_cell(["x = 1\n", "x"]), text, skipped, code_cell("print(x + 1)"))
    done = run(tmp_path, server, "a.ipynb", "--output-notebook", "out.ipynb")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n2\n", "")
    first, _, kept, last = read_notebook(tmp_path / "out.ipynb").cells
    assert (first.execution_count, first.outputs[0].data["text/plain"]) == (1, "1")
    assert (last.execution_count, last.outputs[0].text) == (2, "2\n")
    assert kept.outputs[0].text == "old"
    assert "old" in (tmp_path / "a.ipynb").read_text()


def test_notebook_stops_at_the_first_cell_that_fails(tmp_path: Path, server: Host) -> None:
    expected = code_cell("1/0", tags=["raises-exception"])
    write_notebook(tmp_path / "a.ipynb", expected, code_cell("exit(4)"), code_cell("print('not reached')"))
    done = run(tmp_path, server, "a.ipynb", "--output-notebook", "a.ipynb")
    assert (done.returncode, done.stdout) == (4, "")
    cells = read_notebook(tmp_path / "a.ipynb").cells
    assert [output.ename for cell in cells[:2] for output in cell.outputs] == ["ZeroDivisionError", "SystemExit"]
    assert (cells[2].outputs, cells[2].execution_count) == ([], None)


def test_missing_kernel_of_a_notebook_falls_back_to_the_default(tmp_path: Path, server: Host) -> None:
    write_notebook(tmp_path / "a.ipynb", code_cell("print(1)"), kernelspec=MISSING)
    done = run(tmp_path, server, "a.ipynb")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "the notebook's kernel mine is not installed there, so it runs in python3" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert run(tmp_path, server, "a.ipynb", "--kernel", "python3").stderr == ""


def test_notebook_of_a_language_without_a_kernel_is_refused(tmp_path: Path, server: Host) -> None:
    write_notebook(tmp_path / "a.ipynb", code_cell("cat(1)"), kernelspec={"name": "ir", "language": "R"})
    done = run(tmp_path, server, "a.ipynb", "--output-notebook", "out.ipynb")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel of the server runs it" in done.stderr
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "Expecting"),
        ("[]", "no 'nbformat'"),
        ('{"nbformat": 3, "cells": []}', "convert it with jupyter nbconvert"),
        ('{"nbformat": 4, "cells": 1}', "'cells'"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "cell 1"),
    ],
)
def test_file_that_is_no_notebook_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.ipynb").write_text(content)
    with pytest.raises(UsageError, match=words) as caught:
        read_source(build_parser().parse_args(["run", str(tmp_path / "a.ipynb")]))
    assert "save it again in Jupyter" in str(caught.value)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "a.py", "--output-notebook", "out.ipynb"], "goes with a notebook"),
        (["run", "a.ipynb", "--output-notebook", "missing/out.ipynb"], "missing is not a directory"),
        (["run", "a.ipynb", "--output-notebook", "."], "is a directory"),
        (["run", "a.ipynb", "--language", "r"], "leave it out"),
        (["run", "unknown.py"], "unknown encoding: nope"),
        (["run", "bytes.py"], "declare its encoding"),
        (["run", "bytes.jl"], "save it as UTF-8"),
        (["run", "-c", "1", "--env", "NO_SUCH_VARIABLE"], "write NO_SUCH_VARIABLE=VALUE"),
        (["run", "-c", "1", "--env", "=1"], "write NAME=VALUE"),
    ],
)
def test_unusable_file_or_option_is_refused_before_anything_starts(tmp_path: Path, args: list[str], words: str) -> None:
    write_notebook(tmp_path / "a.ipynb")
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "unknown.py").write_text("# coding: nope\n")
    (tmp_path / "bytes.py").write_bytes(b"1\n2\n'\xe9'")
    (tmp_path / "bytes.jl").write_bytes(b"# \xe9")
    done = jupyter_exec(tmp_path, *args)
    assert done.returncode == 2
    assert words in done.stderr


# --- source files ---


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfprint('caf\xc3\xa9')\n",
        b"# -*- coding: latin-1 -*-\nprint('caf\xe9')\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\r\nprint('caf\xe9')\r\n",
    ],
)
def test_python_file_is_decoded_as_python_decodes_it(tmp_path: Path, server: Host, content: bytes) -> None:
    (tmp_path / "a.py").write_bytes(content)
    assert run(tmp_path, server, "a.py").stdout == "café\n"


@pytest.mark.parametrize(
    ("name", "language"),
    [("a.R", "r"), ("a.r", "r"), ("a.jl", "julia"), ("a.js", "javascript"), ("a.mjs", "javascript")],
)
def test_file_without_a_kernel_of_its_language_is_refused(
    tmp_path: Path, server: Host, name: str, language: str
) -> None:
    (tmp_path / name).write_text("1")
    done = run(tmp_path, server, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the code is {language}, and no kernel of the server runs it; installed there: python3 (" in done.stderr
    named = run(tmp_path, server, name, "--kernel", "python3")
    assert (named.returncode, "the kernel 'python3' runs python" in named.stderr) == (2, True)


def test_file_is_refused_in_a_session_of_another_language(tmp_path: Path, server: Host) -> None:
    (tmp_path / "a.R").write_text("1")
    with ExecClient(server.info) as client, client.session() as session:
        done = run(tmp_path, server, "a.R", "--session", session.id)
        assert session.list_executions() == []
    assert (done.returncode, "leave --session out" in done.stderr) == (2, True)


class _Server:
    """Client of a server with these kernelspecs, the first of which is the default."""

    def __init__(self, **languages: str) -> None:
        specs = [{"name": name, "display_name": name, "language": language} for name, language in languages.items()]
        self._info = {"default_kernel_name": next(iter(languages)), "kernelspecs": specs}

    def info(self) -> dict[str, Any]:
        return self._info


@pytest.mark.parametrize(
    ("name", "kernel", "chosen"),
    [
        ("a.py", None, None),
        ("a.sh", None, "shell"),  # a kernel of its own, before a Python kernel that runs it as well
        ("a.jl", None, "julia-1.11"),
        ("a.jl", "julia-1.10", "julia-1.10"),
        ("a.txt", None, None),
    ],
)
def test_kernel_is_chosen_by_the_language_of_the_file(
    tmp_path: Path, name: str, kernel: str | None, chosen: str | None
) -> None:
    (tmp_path / name).write_text("1")
    source = read_source(build_parser().parse_args(["run", str(tmp_path / name)]))
    specs = {"julia-1.11": "julia", "julia-1.10": "julia", "python3": "python", "shell": "bash"}
    default = {"python3": "python"} if name in ("a.py", "a.txt") else {"r": "R"}
    client: Any = _Server(**{**default, **specs})
    assert choose_kernel(client, source, kernel).name == chosen


def test_server_without_our_api_refuses_what_needs_it(tmp_path: Path) -> None:
    (tmp_path / "a.R").write_text("1")
    write_notebook(tmp_path / "a.ipynb", code_cell("print(1)"), kernelspec=MISSING)
    with running_host("server", tmp_path / "plain", "--ExecExtensionApp.enabled=False") as plain:
        env = run(tmp_path, plain, "-c", "1", "--env", "A=1")
        language = run(tmp_path, plain, "a.R")
        notebook = run(tmp_path, plain, "a.ipynb", "--output-notebook", "out.ipynb")
    assert (env.returncode, "--env needs the exec/v1 API" in env.stderr) == (2, True)
    assert (language.returncode, "with --kernel" in language.stderr) == (2, True)
    assert (notebook.returncode, notebook.stdout) == (0, "1\n")
    assert "the notebook's kernel mine is not installed there" in notebook.stderr
    assert read_notebook(tmp_path / "out.ipynb").cells[0].outputs[0].text == "1\n"


# --- environment and exit code ---


def test_env_sets_variables_for_one_run(tmp_path: Path, server: Host) -> None:
    with ExecClient(server.info) as client, client.session() as session:
        code = "import os; print(os.environ.get('GIVEN'), os.environ.get('TAKEN'))"
        where = ["-c", code, "--session", session.id, "--server", server.info.url]
        env = {**at(server)["env"], "TAKEN": "from here"}
        given = jupyter_exec(tmp_path, "run", *where, "--env", "GIVEN=a=b", "--env", "TAKEN", env=env)
        assert (given.returncode, given.stdout) == (0, "a=b from here\n"), given.stderr
        assert session.run(code).stdout == "None None\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [("exit(4)", 4, ""), ("quit(4)", 4, ""), ("import sys; sys.exit(4)", 4, ""), ("exit('text')", 1, "text\n")],
)
def test_exit_in_a_file_sets_the_exit_code(
    tmp_path: Path, server: Host, code: str, exit_code: int, stderr: str
) -> None:
    (tmp_path / "a.py").write_text(f"{code}\nprint('not reached')\n")
    for source in (["a.py"], ["-c", code]):
        done = run(tmp_path, server, *source)
        assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", stderr)
