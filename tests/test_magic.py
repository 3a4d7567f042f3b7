"""``%%exec``, and what an execution shows of itself, in a real notebook."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.client.server_profiles import ServerProfile, add_profile, remove_profile
from jupyter_exec_ext.magic import ExecMagic

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


@pytest.fixture
def magic() -> Iterator[ExecMagic]:
    magic = ExecMagic(SimpleNamespace(user_ns={}))
    yield magic
    magic.close()


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ServerProfile:
    """The profile ``lab``, of which a test writes the token."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    return ServerProfile("lab", "http://127.0.0.1:9/", token_file=str(tmp_path / "token"))


def test_rotated_token_of_profile_keeps_variables(
    hosts: Any, magic: ExecMagic, profile: ServerProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    info = hosts["gateway"].info
    add_profile(replace(profile, server=info.url))
    with ExecClient(info) as client:
        scopes = ["sessions:create", "sessions:read", "sessions:delete", "executions:create", "executions:read"]
        issued = client.tokens.create("notebook", scopes)
        Path(str(profile.token_file)).write_text(issued.text)
        magic.run_cell("--server lab", "x = 42")
        Path(str(profile.token_file)).write_text(client.tokens.rotate(issued.token.id).text)
    magic.run_cell("--server lab", "print(x)")
    assert capsys.readouterr().out == "42\n"


def test_server_that_does_not_know_the_session_gets_a_new_one(
    hosts: Any, magic: ExecMagic, profile: ServerProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a server that was replaced by another one, at another address."""
    for name in ("gateway", "server"):
        info = hosts[name].info
        Path(str(profile.token_file)).write_text(info.token)
        add_profile(replace(profile, server=info.url))
        magic.run_cell("--server lab", f"print('on', {name!r}, 'x' in globals()); x = 1")
        remove_profile("lab")
    assert capsys.readouterr().out == "on gateway False\non server False\n"


def test_automatic_server_stays_until_it_stops(
    hosts: Any, magic: ExecMagic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "run" / f"jpserver-{number}.json" for number in (1, 2)]
    files[0].parent.mkdir()
    for age_seconds, name, file in zip((60, 0), ("gateway", "server"), files, strict=True):
        info = hosts[name].info
        file.write_text(json.dumps({"url": info.url, "token": info.token}))
        os.utime(file, times=(time.time() - age_seconds,) * 2)
        magic.run_cell("", f"print({name!r}, 'x' in globals()); x = 1")
    files[0].unlink()
    magic.run_cell("", "print('stopped', 'x' in globals())")
    assert capsys.readouterr().out == "gateway False\nserver True\nstopped False\n"


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
