"""Framework pages as the test reads them: their install lines, and the replies of the model that stands in."""

from __future__ import annotations

import re

from tests.docs.blocks import DOCS, ROOT, Block, blocks

#: Pages of the folder that are for all frameworks.
GENERAL = {"index", "common"}
#: Replies of models that are offered no tool, by page: code in the framework's own form.
TEXTS: dict[str, list[str]] = {
    "autogen02": ["I sum them up.\n\n```python\nprint(sum(n * n for n in range(1, 21)))\n```"],
    "smolagents": ["Thought: I sum them up.\n<code>\nfinal_answer(sum(k * k for k in range(1, n + 1)))\n</code>"],
}
FRAMEWORKS = [path.stem for path in sorted((DOCS / "frameworks").glob("*.md")) if path.stem not in GENERAL]
#: Pages of MCP clients.
MCP_PAGES = [path.stem for path in sorted((DOCS / "mcp").glob("*.md")) if path.stem not in ("index", "endpoint")]
_INSTALL = re.compile(r"^pip install .+$", re.MULTILINE)
_ALTERNATIVE = re.compile(r"`(pip install [^`]+)`")
# From a clone, or from an index once the package is on one (`tools/switch_install_lines.py`).
_OWN_PACKAGE = re.compile(r"'(?:\.|jupyter-exec-ext)\[([\w,-]+)\]'")


def page_of(name: str, folder: str = "frameworks") -> str:
    """Return a page's path in the repository."""
    return f"docs/{folder}/{name}.md"


def install_blocks(page: str) -> list[Block]:
    """Return the blocks of a page that install."""
    return [block for block in blocks(page) if block.language == "sh" and _INSTALL.search(block.text)]


def install_lines(page: str) -> list[str]:
    """Return the lines that install: that of the page's block, and alternatives in its sentences."""
    (block,) = install_blocks(page)
    (line,) = _INSTALL.findall(block.text)
    return [line, *_ALTERNATIVE.findall((ROOT / page).read_text(encoding="utf-8"))]


def extras_of(line: str) -> list[str]:
    """Return the extras of this package that a line installs."""
    (named,) = _OWN_PACKAGE.findall(line)
    return str(named).split(",")
