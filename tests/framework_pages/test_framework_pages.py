"""Framework pages have what their run needs. `python -m tests.framework_pages` runs them, which takes minutes each."""

from __future__ import annotations

import ast
import json
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from jupyter_exec_ext.cli.mcp_client_config import CLIENTS
from tests.docs.blocks import ROOT, blocks
from tests.docs.test_blocks import assert_is_there
from tests.framework_pages.__main__ import MCP_CLIENTS, PAGES
from tests.framework_pages.pages import (
    FRAMEWORKS,
    MCP_PAGES,
    TEXTS,
    extras_of,
    install_blocks,
    install_lines,
    page_of,
)
from tests.framework_pages.scripted_model import CODE, ScriptedModel, scripted_model

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ADAPTERS = ROOT / "jupyter_exec_ext" / "adapters"
INSTALLING = [*(page_of(name) for name in FRAMEWORKS), page_of("index", "mcp")]


def test_pages_are_found() -> None:
    assert len(FRAMEWORKS) >= 9
    assert sorted(CLIENTS) == MCP_PAGES


def test_full_run_knows_all_pages_and_all_texts() -> None:
    assert set(PAGES) == {*FRAMEWORKS, MCP_CLIENTS}
    assert set(TEXTS) <= set(FRAMEWORKS)


@pytest.mark.parametrize("page", INSTALLING)
def test_page_has_one_install_block_and_its_extras_exist(page: str) -> None:
    (block,) = install_blocks(page)
    assert block.text.count("\n") == 1
    for line in install_lines(page):
        assert extras_of(line)
        assert set(extras_of(line)) <= set(EXTRAS), line


@pytest.mark.parametrize("page", INSTALLING)
def test_page_starts_one_server(page: str) -> None:
    lines = [block.text for block in blocks(page) if block.language == "sh" and "exec serve" in block.text]
    assert lines == ["jupyter exec serve --port 8888 --token-file token\n"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_program_of_page_compiles_and_imports_what_exists(name: str) -> None:
    (program,) = (block for block in blocks(page_of(name)) if block.language == "python")
    assert program.file == "agent.py"
    for node in ast.walk(ast.parse(program.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jupyter_exec_ext"):
            for alias in node.names:
                assert_is_there(str(node.module), alias.name)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_page_shows_how_to_run_its_program(name: str) -> None:
    (shown,) = (block.text for block in blocks(page_of(name)) if block.language == "console")
    assert shown.startswith("you$ python agent.py\n") and "2870" in shown


def test_each_adapter_has_a_page() -> None:
    programs = "".join((ROOT / page_of(name)).read_text() for name in FRAMEWORKS)
    for adapter in ADAPTERS.glob("[!_]*.py"):
        assert f"jupyter_exec_ext.adapters.{adapter.stem}" in programs


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model(["a text"]) as model:
        yield model


def ask(model: ScriptedModel, path: str, **asked: object) -> dict[str, object]:
    body = json.dumps({"model": "m", **asked}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{model.url}{path}", body)) as answer:
        found: dict[str, object] = json.load(answer)
    return found


TOOL = {"name": "run", "parameters": {"properties": {"code": {}, "language": {}}}}


def test_scripted_model_calls_the_tool_and_then_says_its_result(model: ScriptedModel) -> None:
    user = {"role": "user", "content": "?"}
    called = str(ask(model, "/chat/completions", messages=[user], tools=[{"type": "function", "function": TOOL}]))
    assert CODE in called and "'run'" in called and "python" in called
    told = ask(model, "/chat/completions", messages=[user, {"role": "tool", "content": "2870\n"}], tools=[TOOL])
    assert "squares is 2870." in str(told)
    assert CODE in str(ask(model, "/responses", input="?", tools=[TOOL]))
    result = {"type": "function_call_output", "output": [{"type": "input_text", "text": "2870"}]}
    assert "squares is 2870." in str(ask(model, "/responses", input=[result], tools=[TOOL]))
    assert "a text" in str(ask(model, "/chat/completions", messages=[user]))
    assert model.problems == []
