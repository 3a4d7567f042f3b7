"""Every command and every program that the documentation shows is run by a test, or says why not."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from tests.docs.blocks import ROOT, Block, blocks, blocks_of, pages
from tests.docs.setups import PAGES
from tests.framework_pages.pages import FRAMEWORKS, page_of

# Pages whose tests are not in `setups`, since more happens there than commands.
ELSEWHERE = {
    "docs/howto/upkeep.md": "tests/docs/test_upkeep.py",
    "docs/admin/compose.md": "tests/docs/admin/test_compose.py",
    "docs/admin/drain.md": "tests/docs/admin/test_drain.py",
    "docs/admin/gateway.md": "tests/docs/admin/test_gateway.py",
    "docs/admin/jupyterhub-class.md": "tests/docs/admin/test_jupyterhub_class.py",
    "docs/admin/monitoring.md": "tests/docs/admin/test_monitoring.py",
    "docs/admin/pool-of-servers.md": "tests/docs/admin/test_pool_of_servers.py",
    "docs/admin/pool-set-up.md": "tests/docs/admin/test_pool_set_up.py",
    "docs/admin/slurm.md": "tests/slurm/test_pool_at_slurm.py",
    "docs/admin/reverse-proxies.md": "tests/docs/admin/test_reverse_proxies.py",
    "docs/admin/shared-lab-server.md": "tests/docs/admin/test_shared_lab_server.py",
    "docs/admin/systemd.md": "tests/docs/admin/test_systemd.py",
    "docs/tutorials/run-code.md": "tests/docs/test_tutorials.py",
    "docs/tutorials/agent-token.md": "tests/docs/test_tutorials.py",
    **{page_of(name): "tests/framework_pages/__main__.py" for name in FRAMEWORKS},
}
ALL = [block for page in pages() for block in blocks(page)]
_COMMAND = re.compile(r"^(\w*\$ )?(jupyter|pip|python|curl|docker|podman|npm|apt|apt-get|export) ", re.MULTILINE)
_FILE = re.compile(r"[\w./-]+/[\w./-]+\w")


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def test_the_pages_are_found_with_their_blocks() -> None:
    assert len(pages()) > 20
    assert len([block for block in ALL if block.is_run]) > 50


def test_a_mark_belongs_to_the_block_below_it() -> None:
    text = "```sh\na\n```\n\n<!-- not run: a reason -->\n```python\nb\n```\n\n<!-- not run: lost -->\n\n```sh\nc\n```\n"
    assert [(block.line, block.text, block.reason) for block in blocks_of("page", text)] == [
        (1, "a\n", None),
        (6, "b\n", "a reason"),
        (12, "c\n", None),
    ]


def test_every_mark_has_a_block() -> None:
    for page in pages():
        marks = (ROOT / page).read_text(encoding="utf-8").count("<!-- not run:")
        assert marks == len([block for block in blocks(page) if block.reason is not None]), page


@pytest.mark.parametrize("page", pages())
def test_what_is_not_marked_is_run(page: str) -> None:
    run = [name_of(block) for block in blocks(page) if block.is_run]
    assert not run or page in PAGES or page in ELSEWHERE, f"no test runs {run}"


def test_no_test_is_for_a_page_that_has_nothing_to_run() -> None:
    for page in [*PAGES, *ELSEWHERE]:
        assert any(block.is_run for block in blocks(page)), page
    assert not set(PAGES) & set(ELSEWHERE)
    for test in ELSEWHERE.values():
        assert (ROOT / test).is_file()


@pytest.mark.parametrize("block", [block for block in ALL if block.reason is not None], ids=name_of)
def test_a_reason_is_one(block: Block) -> None:
    """It is a sentence, for something that could be run; the files that it names are there."""
    assert block.is_runnable
    assert block.reason is not None and len(block.reason.split()) >= 4
    for name in _FILE.findall(block.reason):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("block", [block for block in ALL if not block.is_runnable], ids=name_of)
def test_no_command_hides_in_a_block_of_another_kind(block: Block) -> None:
    assert not _COMMAND.search(block.text) or block.language == "dockerfile"


@pytest.mark.parametrize("block", [b for b in ALL if b.language == "python" and b.reason is not None], ids=name_of)
def test_python_that_is_not_run_could_be(block: Block) -> None:
    """It compiles, and what it imports from here is there."""
    tree = compile(block.text, name_of(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jupyter_exec_ext"):
            assert node.module is not None
            for alias in node.names:
                assert_is_there(node.module, alias.name)


def assert_is_there(module: str, name: str) -> None:
    """An adapter is read and not imported: its framework need not be here."""
    if not module.startswith("jupyter_exec_ext.adapters."):
        assert hasattr(importlib.import_module(module), name)
        return
    body = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")).body
    defined = {node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    imported = {alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert name in defined | imported, (module, name)
