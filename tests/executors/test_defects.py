"""Rows of `docs/contributing/defects.md`: each names tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "contributing" / "defects.md").read_text()
NUMBERS = [f"D{number}" for number in range(1, 65)]
NUMBERS += [f"T{number}" for number in range(1, 11)]
NUMBERS += [f"D{number}" for number in range(80, 88)]
NUMBERS.insert(NUMBERS.index("D23") + 1, "D23b")
NUMBERS += ["D112", "D113", "D114", "D115", "D116", "D117", "D118"]
LINK = re.compile(r"\[([\w/]+\.py)::(\w+)\]\(\.\./\.\./([\w/]+\.py)\)")


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield the number of each row with its cells."""
    for line in TEXT.splitlines():
        number, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if re.fullmatch(r"[DT]\d+b?", number):
            yield number, cells


def test_every_number_has_one_row() -> None:
    assert [number for number, _ in rows()] == NUMBERS


@pytest.mark.parametrize(("number", "cells"), list(rows()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_tests_that_a_row_names_exist(number: str, cells: list[str]) -> None:
    _, _, shown_by = cells
    links = LINK.findall(shown_by)
    assert links
    assert len(links) == shown_by.count("::"), "something is no link"
    for path, name, target in links:
        assert path == target
        tree = ast.parse((ROOT / path).read_text())
        assert name in [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def test_clients_and_executors_need_nothing_that_only_posix_systems_have() -> None:
    """D4. What only those have cannot be imported here, as on Windows; nothing more of Windows is shown."""
    modules = (
        "client executors.jupyter executors.embedded embedded.embedded_driver executors.hub executors.binder "
        "aca.executor.aca_executor adapters._session_portal"
    )
    code = (
        "import importlib, psutil, sys\n"  # psutil has a module for each system
        "for name in ('fcntl', 'grp', 'pty', 'pwd', 'resource', 'termios', 'tty'): sys.modules[name] = None\n"
        f"for name in {modules.split()}: importlib.import_module(f'jupyter_exec_ext.{{name}}')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
