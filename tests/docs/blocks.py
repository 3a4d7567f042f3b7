"""The commands and programs that the documentation shows, and what it says about running them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

# What somebody is to type or to run. Other blocks are files, results and pictures of text.
RUNNABLE = ("sh", "bash", "console", "python")
_NOT_PAGES = ("_build", "_ext")
_FENCE = re.compile(
    r"^(?P<mark><!-- not run: (?P<reason>.*) -->\n)?```(?P<language>.*)\n(?P<text>(?s:.*?))^```$", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A block of a page; `reason` is why it is not run, if it is not."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def is_runnable(self) -> bool:
        return self.language in RUNNABLE

    @property
    def is_run(self) -> bool:
        return self.is_runnable and self.reason is None

    @property
    def is_configuration(self) -> bool:
        """Whether Jupyter reads it, who has the name ``c``."""
        return self.language == "python" and bool(re.search(r"^c\.\w+\.\w+ = ", self.text, re.MULTILINE))

    @property
    def file(self) -> str | None:
        """The name of the file that it is, which stands in its first line."""
        match = re.match(r"# ([\w./~-]+\.\w+)\n", self.text)
        return match[1] if match else None


def pages() -> list[str]:
    """Return the README and all pages, by their path in the repository."""
    found = [path for path in sorted(DOCS.rglob("*.md")) if path.relative_to(DOCS).parts[0] not in _NOT_PAGES]
    return ["README.md", *(path.relative_to(ROOT).as_posix() for path in found)]


def blocks(page: str) -> list[Block]:
    """Return all blocks of a page."""
    return list(blocks_of(page, (ROOT / page).read_text(encoding="utf-8")))


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yield all blocks of a text."""
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        yield Block(page, line, match["language"].strip(), match["text"], match["reason"])
