"""``jupyter exec migrate``: what moves, what stays, and that nothing else changes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import jupyter_exec_ext
from jupyter_exec_ext.cli.import_rewriting import IMPORTS, rewrite_imports
from jupyter_exec_ext.cli.main import main
from tests.executors import seed_examples


@pytest.mark.parametrize("module", IMPORTS)
def test_the_table_names_what_the_package_has(module: str) -> None:
    home, names = IMPORTS[module]
    if home == "jupyter_exec_ext":
        assert set(names) <= set(jupyter_exec_ext.__all__)
    else:  # it needs a framework that is not there
        adapter = Path(jupyter_exec_ext.__file__).parent / "adapters" / "autogen.py"
        (exported,) = re.findall(r"^__all__ = \[(.*?)\]", adapter.read_text(), re.DOTALL | re.MULTILINE)
        assert set(names) <= set(re.findall(r'"(\w+)"', exported))


def rewritten(*sources: str) -> tuple[list[str], list[str]]:
    changed, notes = rewrite_imports(sources)
    assert rewrite_imports(changed)[0] == changed, "a second time changes something"
    for source in changed:
        ast.parse(source)
    return changed, [note.text for note in notes]


# Each with its name, what is there before, and what is there after.
CASES = """\
### one line
from autogen.coding import CodeBlock  # a block
->
from jupyter_exec_ext import CodeBlock  # a block
### with another name
from autogen.coding.jupyter import JupyterCodeExecutor as Executor, LocalJupyterServer
->
from jupyter_exec_ext import JupyterCodeExecutor as Executor, LocalJupyterServer
### several lines, all
from autogen.coding.jupyter import (  # Jupyter
    JupyterCodeExecutor,  # runs
    LocalJupyterServer as S
)
->
from jupyter_exec_ext import (  # Jupyter
    JupyterCodeExecutor,  # runs
    LocalJupyterServer as S
)
### several lines, some
import os
try:
    from autogen.coding.jupyter import (  # Jupyter
        JupyterClient,  # stays
        JupyterCodeExecutor,
        LocalJupyterServer as S
    )
except ImportError:
    x = 1
->
import os
try:
    # Jupyter
    # stays
    from autogen.coding.jupyter import JupyterClient
    from jupyter_exec_ext import JupyterCodeExecutor, LocalJupyterServer as S
except ImportError:
    x = 1
### in brackets on one line
from autogen.coding import (CodeBlock, CodeExecutor)
->
from autogen.coding import CodeExecutor
from jupyter_exec_ext import CodeBlock
### some of one line
from autogen.coding import LocalCommandLineCodeExecutor, CodeBlock as B  # noqa
->
from autogen.coding import LocalCommandLineCodeExecutor
from jupyter_exec_ext import CodeBlock as B  # noqa
### with other statements on the line
import os; from autogen.coding import CodeBlock, CodeExecutor; x = 1
->
import os; from autogen.coding import CodeExecutor; from jupyter_exec_ext import CodeBlock; x = 1
### after a colon
if True: from autogen.coding import CodeBlock, CodeExecutor
->
if True: from autogen.coding import CodeExecutor; from jupyter_exec_ext import CodeBlock
### with backslashes
from autogen.coding \\
    import CodeBlock, \\
    CodeExecutor
->
from autogen.coding import CodeExecutor
from jupyter_exec_ext import CodeBlock
### a module by another name
import os, autogen.coding.jupyter as j  # Jupyter
server = j.LocalJupyterServer()
j . JupyterCodeExecutor(server)
->
import os, jupyter_exec_ext as j  # Jupyter
server = j.LocalJupyterServer()
j . JupyterCodeExecutor(server)
### a module from its package
from autogen.coding import jupyter, CodeBlock, CodeExecutor
jupyter.LocalJupyterServer()
->
from autogen.coding import CodeExecutor
from jupyter_exec_ext import CodeBlock
import jupyter_exec_ext as jupyter
jupyter.LocalJupyterServer()
### a module by its whole name
import autogen.coding.jupyter
server = autogen.coding.jupyter.LocalJupyterServer(port=1).ip
->
import jupyter_exec_ext
server = jupyter_exec_ext.LocalJupyterServer(port=1).ip
### for an adapter
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor
->
from jupyter_exec_ext.adapters.autogen import JupyterCodeExecutor
### texts are not imports
'''  from autogen.coding import CodeBlock '''
from autogen.coding import CodeBlock; s = 'from autogen.coding import CodeBlock'
->
'''  from autogen.coding import CodeBlock '''
from jupyter_exec_ext import CodeBlock; s = 'from autogen.coding import CodeBlock'
"""


def cases() -> dict[str, tuple[str, str]]:
    found = {}
    for case in CASES.split("### ")[1:]:
        name, _, sources = case.partition("\n")
        before, _, after = sources.partition("->\n")
        found[name] = (before, after)
    return found


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_only_imports_of_the_table_are_rewritten(name: str, line_end: str) -> None:
    before, after = (source.replace("\n", line_end) for source in cases()[name])
    assert rewritten(before)[0] == [after]


def test_imports_after_multibyte_letters_are_rewritten() -> None:
    before = "ü = 'ü\u2028\x0c'; from autogen.coding import CodeBlock, CodeExecutor as É"
    after = "ü = 'ü\u2028\x0c'; from autogen.coding import CodeExecutor as É; from jupyter_exec_ext import CodeBlock"
    assert rewritten(before)[0] == [after]


_AS_A_MODULE = "it is used as a module, so its names cannot be mapped"
STAYS = [
    ("from autogen.coding import CommandLine\n", "CommandLine stays with autogen.coding"),
    ("from autogen.coding.jupyter import *\n", "everything is imported"),
    ("import autogen.coding.jupyter as j\nj.JupyterClient, j.LocalJupyterServer\n", _AS_A_MODULE),
    ("import autogen.coding.jupyter as j\nprint(j)\nj.LocalJupyterServer\n", _AS_A_MODULE),
    ("from autogen.coding import jupyter as j\nj = j.LocalJupyterServer\n", _AS_A_MODULE),
    ("import autogen.coding.jupyter\nautogen.Agent(autogen.coding.jupyter.LocalJupyterServer)\n", _AS_A_MODULE),
    ("import autogen\nautogen.coding.CodeBlock\n", "left autogen unchanged"),
    ("x = 1; from autogen.coding import (CodeBlock, # a\n CodeExecutor)\n", "has comments and shares its line"),
    ("from .autogen.coding import CodeBlock\nfrom autogen import Agent\nimport autogen.cache\n", None),
    ("from other.autogen.coding import CodeBlock\nautogen.coding.CodeBlock\n", None),
]


@pytest.mark.parametrize(("source", "why"), STAYS)
def test_unmapped_imports_stay_with_a_note(source: str, why: str | None) -> None:
    sources, notes = rewritten(source)
    assert sources == [source]
    assert notes == [] if why is None else any(why in note for note in notes)


def test_cells_of_a_notebook_share_names() -> None:
    cells = (
        "import autogen.coding.jupyter as j\nimport autogen.coding",
        "j.LocalJupyterServer()",
        "autogen.coding.CodeBlock",
    )
    assert rewritten(*cells)[0] == [
        "import jupyter_exec_ext as j\nimport jupyter_exec_ext",
        "j.LocalJupyterServer()",
        "jupyter_exec_ext.CodeBlock",
    ]
    assert rewritten(cells[0], "j.JupyterClient")[0][0].startswith("import autogen.coding.jupyter as j\n")


# --- the command ---

Migrate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Migrate:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["migrate", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


SEED = seed_examples.LOCAL.replace(
    "from jupyter_exec_ext import CodeBlock", "from autogen.coding import CodeBlock"
).replace("from jupyter_exec_ext import Jupyter", "from autogen.coding.jupyter import Jupyter")


def test_autogens_example_becomes_this_packages(migrate: Migrate, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(SEED)
    code, diff, said = migrate(".")
    assert (code, said) == (0, "1 file to change; --write changes them\n")
    assert "-from autogen.coding import CodeBlock\n" in diff
    assert "+from jupyter_exec_ext import JupyterCodeExecutor, LocalJupyterServer\n" in diff
    assert (tmp_path / "example.py").read_text() == SEED
    assert migrate("--write", "example.py", ".") == (0, "example.py\n", "1 file changed\n")
    assert (tmp_path / "example.py").read_text() == seed_examples.LOCAL
    assert migrate("--write", ".") == (0, "", "0 files changed\n")


def test_a_file_that_cannot_be_read_is_named_and_left_alone(migrate: Migrate, tmp_path: Path) -> None:
    broken = {
        "broken.py": b"from autogen.coding import CodeBlock\ndef f(:\n",
        "latin.py": b"from autogen.coding import CodeBlock  # \xfc\n",
        "what.py": b"# coding: no-such\nfrom autogen.coding import CodeBlock\n",
        "none.ipynb": b'["autogen"]',
        "torn.ipynb": b'{"autogen"',
        "zero.py": b"import autogen\nx = '\0'",
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.py").write_text("from autogen.coding import CodeBlock\n")
    (tmp_path / "unconcerned.py").write_text("def f(:\n")
    code, out, said = migrate("--write", ".")
    assert (code, out) == (1, "good.py\n")
    assert "broken.py: left alone: line 2: " in said
    for name, content in broken.items():
        assert f"{name}: left alone: " in said
        assert (tmp_path / name).read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_encoding_permissions_and_links_are_kept(migrate: Migrate, tmp_path: Path) -> None:
    files = {
        "bom.py": b"\xef\xbb\xbffrom autogen.coding import CodeBlock\r\n",
        "latin.py": b"# -*- coding: latin-1 -*-\nfrom autogen.coding import CodeBlock  # \xfc",
        "stub.pyi": b"from autogen.coding import CodeBlock\n\x0c\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "bom.py").chmod(0o750)
    (tmp_path / "link.py").symlink_to("latin.py")
    assert migrate("--write", "bom.py", "link.py", "stub.pyi")[0] == 0
    for name, content in files.items():
        assert (tmp_path / name).read_bytes() == content.replace(b"autogen.coding", b"jupyter_exec_ext")
    assert (tmp_path / "bom.py").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "link.py").is_symlink()


def notebook(*sources: object, language: str = "python") -> dict[str, object]:
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["from autogen.coding import CodeBlock"]}
    ]
    cells += [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
        for source in sources
    ]
    return {"cells": cells, "metadata": {"kernelspec": {"language": language}}, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.parametrize(("indent", "end"), [(1, "\n"), (4, ""), (None, "\n")])
def test_notebooks_change_in_their_code_alone(migrate: Migrate, tmp_path: Path, indent: int | None, end: str) -> None:
    cells = [
        [
            "!pip install pyautogen\n",
            "%matplotlib inline\n",
            "files = !ls\n",
            "from autogen.coding import CodeBlock  # ü",
        ],
        "%%time\nfrom autogen.coding import CodeBlock\nCodeBlock?",
        "%%bash\nfrom autogen.coding import CodeBlock",
        "",
    ]
    text = json.dumps(notebook(*cells), indent=indent, ensure_ascii=False) + end
    (tmp_path / "a.ipynb").write_text(text)
    assert migrate("--write", ".") == (0, "a.ipynb\n", "1 file changed\n")
    first = text.replace("autogen.coding import CodeBlock  #", "jupyter_exec_ext import CodeBlock  #")
    expected = first.replace("time\\nfrom autogen.coding", "time\\nfrom jupyter_exec_ext")
    assert (tmp_path / "a.ipynb").read_text() == expected != text
    assert migrate(".")[:2] == (0, "")


def test_a_notebook_in_another_language_or_with_a_broken_cell_is_left(migrate: Migrate, tmp_path: Path) -> None:
    code = "from autogen.coding import CodeBlock"
    (tmp_path / "r.ipynb").write_text(json.dumps(notebook(code, language="R")))
    (tmp_path / "x.ipynb").write_text(json.dumps(notebook(code, "x = (")))
    exit_code, out, said = migrate("--write", ".")
    assert (exit_code, out) == (1, "")
    assert "x.ipynb: left alone: code cell 2, line 1: " in said and "r.ipynb" not in said


def test_directories_of_other_code_are_skipped(migrate: Migrate, tmp_path: Path) -> None:
    for name in (".git", "env", "node_modules", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("from autogen.coding import CodeBlock\n")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert migrate(".") == (0, "", "0 files to change; --write changes them\n")


def test_wrong_paths_exit_with_2(migrate: Migrate, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert migrate("a.txt")[0] == migrate("missing.py")[0] == 2


def test_notes_name_file_and_line(migrate: Migrate, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("\nfrom autogen.coding.jupyter import JupyterClient\n")
    (tmp_path / "b.ipynb").write_text(json.dumps(notebook("x = 1", "from autogen.coding.jupyter import *")))
    code, _, said = migrate(".")
    assert code == 0
    assert "a.py:2: JupyterClient stays with autogen.coding.jupyter\n" in said
    assert "b.ipynb: code cell 2, line 1: everything is imported from autogen.coding.jupyter" in said
