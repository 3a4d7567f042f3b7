"""Mistakes of newcomers (``mistakes.toml``): each message has the cause, the thing and the remedy, in plain words.

A commit makes each quick mistake in this process. The full run makes all of them as a newcomer does: commands in a
process of their own, programs by Python.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import jupyter_exec_ext
from jupyter_exec_ext.cli.main import main
from tests.docs.mistake_place import Place, newcomers_place
from tests.support.full import only_in_full
from tests.support.hosts import clean_environment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.timeout(120)
_HERE = Path(__file__).parent
_PACKAGE = Path(jupyter_exec_ext.__file__).parent
MISTAKES: list[dict[str, Any]] = tomllib.loads((_HERE / "mistakes.toml").read_text(encoding="utf-8"))["mistake"]
_NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere.sock"}
# Words that tell a newcomer nothing. Class names are added below.
_HEADERS = (
    r"\b(Host|Origin|Referer|Authorization|Cookie|Accept|Prefer|Location|Retry-After|Last-Event-ID|Idempotency-Key)"
    r"\b.{0,3}header|\bAuthorization\b|\bContent-[A-Z]\w+|\bX-[A-Z]\w+|\bWWW-Authenticate|\b[Hh]eader\b"
)
_INTERNAL = re.compile(rf"Traceback|[Ee]rrno|{_HEADERS}")
# Of several words, or private: a class such as `Token` is also a word of English.
_CLASS_NAME = re.compile(r"_?[A-Z]+[a-z]+[A-Z]\w*|_[A-Z]\w+")
#: Lines with which a snippet of the table begins.
_BEFORE = """\
import asyncio, io
from pathlib import Path
from jupyter_exec_ext import *
token = Path("owner.token").read_text()
client = ExecClient("http://127.0.0.1:8888/", token)
session = client.get_session("SESSION_ID")
"""


def class_names() -> frozenset[str]:
    """Return the names of the package's classes that are no words."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in _PACKAGE.rglob("*.py"))
    found = (node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return frozenset(name for name in found if _CLASS_NAME.fullmatch(name))


_CLASSES = class_names()


def name_of(mistake: dict[str, Any]) -> str:
    return str(mistake["name"]).replace(" ", "_")


def check(mistake: dict[str, Any], message: str, place: Place) -> None:
    """Compare a message with the table, and look for what is internal."""
    for part in ("cause", "thing", "remedy"):
        assert re.search(place.written(mistake[part]), message), f"no {part} in: {message}"
    assert not (found := _INTERNAL.search(message)), (found, message)
    assert not (names := _CLASSES & set(re.findall(r"\w+", message))), (names, message)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with newcomers_place(tmp_path_factory.mktemp("newcomer")) as found:
        yield found


def hide_package(mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the import of the package fail that the mistake is without."""
    if name := mistake.get("without"):
        # Its modules, too: one that another test has loaded is found without the package.
        loaded = [module for module in sys.modules if module.startswith(f"{name}.")]
        for module in (name, *loaded):
            monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(sys.modules, f"jupyter_exec_ext.adapters.{name}", raising=False)


def test_the_table_has_sixty_mistakes_with_different_names() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake["name"] for mistake in MISTAKES}) == len(MISTAKES)


def test_class_names_are_found() -> None:
    assert {"ExecClient", "AwaitableContext", "JupyterConnectionInfo", "UsageError"} <= _CLASSES
    assert _INTERNAL.search("the name in the Host header") and _INTERNAL.search("[Errno 2]")


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if "command" in m and not m.get("full")], ids=name_of)
def test_mistake_in_a_command(
    mistake: dict[str, Any], place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.desk)
    hide_package(mistake, monkeypatch)
    jupyter, exec_, *words = shlex.split(place.written(mistake["command"]))
    assert (jupyter, exec_) == ("jupyter", "exec")
    try:
        code: object = main(words)
    except SystemExit as left:
        code = left.code
    message = capsys.readouterr().err
    assert code == mistake["exit"], message
    check(mistake, message, place)


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if "python" in m and not m.get("full")], ids=name_of)
def test_mistake_in_a_program(mistake: dict[str, Any], place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.desk)
    hide_package(mistake, monkeypatch)
    names = {name: getattr(jupyter_exec_ext, name) for name in jupyter_exec_ext.__all__}
    names |= {"client": place.client, "session": place.session, "token": place.host.info.token}
    names |= {"asyncio": asyncio, "io": io, "Path": Path}
    code = compile(place.written(mistake["python"]), "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    error = error_of(code, names)
    assert type(error).__name__ == mistake["error"], error
    check(mistake, str(error), place)


def error_of(code: Any, names: dict[str, Any]) -> BaseException | None:
    """Return the error that a program ends with; it has a thread, since pytest's plugins use this one's event loop."""

    def run() -> None:
        result = eval(code, names)  # the table is ours
        if inspect.iscoroutine(result):
            asyncio.run(result)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).exception()


@only_in_full
@pytest.mark.parametrize("mistake", MISTAKES, ids=name_of)
def test_mistake_in_a_process_of_its_own(mistake: dict[str, Any], place: Place, tmp_path: Path) -> None:
    env = clean_environment(tmp_path, PATH=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
    env |= _NO_ENGINE
    if name := mistake.get("without"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('not installed', name={name!r})\n")
        env["PYTHONPATH"] = str(tmp_path)
    if "command" in mistake:
        command, program = shlex.split(place.written(mistake["command"])), ""
    else:
        command = [sys.executable, str(_HERE / "run_python.py")]
        program = place.written(_BEFORE + mistake["python"])
    done = subprocess.run(
        command, input=program, env=env, cwd=place.desk, capture_output=True, text=True, timeout=100, check=False
    )
    if "command" in mistake:
        assert done.returncode == mistake["exit"], done.stderr
        check(mistake, done.stderr, place)
        return
    assert done.returncode == 1, done.stderr
    # Libraries may print more after it, such as of connections that were left open.
    found = re.search(rf"^(?:[\w.]+\.)?{mistake['error']}: (.*)", done.stderr, re.MULTILINE)
    assert found, done.stderr
    check(mistake, found[1], place)
