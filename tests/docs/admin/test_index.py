"""The administrators' pages as a set: all are listed, and each file that they show is used by the page's test."""

from __future__ import annotations

import re

import pytest

from tests.docs.admin import page
from tests.docs.blocks import DOCS, ROOT, blocks

PAGES = sorted(path.stem for path in (DOCS / "admin").glob("*.md"))


def test_every_page_is_in_a_table_and_in_the_toctree() -> None:
    index = page("index")
    table, _, toctree = index.partition("```{toctree}")
    for name in PAGES:
        if name != "index":
            assert re.search(rf"^\| .* \| \[[^]]+\]\({name}\.md\) \|$", table, re.MULTILINE), name
            assert f"\n{name}\n" in toctree


@pytest.mark.parametrize("name", PAGES)
def test_every_file_on_a_page_is_used_by_its_test(name: str) -> None:
    files = [block.text.partition("\n")[0] for block in blocks(f"docs/admin/{name}.md") if block.text.startswith("# /")]
    for first in files:
        test = ROOT / "tests" / "docs" / "admin" / f"test_{name.replace('-', '_')}.py"
        file = first.removeprefix("# ")
        assert file in test.read_text() or file.rpartition("/")[2] in test.read_text(), first
