"""Check of the pages' English: length of pages and sentences, and phrases that readers stumble over.

python -m tests.docs.prose              all user pages
python -m tests.docs.prose PAGE …       some pages, with every finding
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.docs.blocks import ROOT, pages

#: Words of a page that a reader sees, code blocks excepted.
MAX_PAGE_WORDS = 900
#: Words of a sentence, on average over a page's paragraphs.
MAX_SENTENCE_WORDS = 17.0
#: A shorter page's average says little.
MIN_SENTENCES = 8
#: Words of the README, without code and tables.
MAX_README_WORDS = 350
# Pages for contributors, and reference pages, which are long because their subject is.
_NOT_FOR_USERS = ("docs/contributing/", "docs/about/changes.md", "docs/about/contributing.md")
_REFERENCE = "docs/reference/"

_FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,}).*?^(?P=fence)`*:*\s*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +")
_CODE = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']?\s+(?=[A-Z(\"'])")
_HEADLESS = re.compile(r"(?:What|Which|Whether|Who|Whoever|Whatever|Whichever|Whose|That which)\b[^?]*$")
_STUMBLES = {
    "a person that is none": re.compile(r"\b(?:nobody|somebody|whoever)\b", re.IGNORECASE),
    "an old-fashioned phrase": re.compile(
        r"\b(?:so long|as such|of its own accord|its likes|has no business|has patience|heeds?)\b", re.IGNORECASE
    ),
    "a list of negations": re.compile(r"\b(?:not|no|nor)\b[^.]*,\s*(?:not|no|nor)\b[^.]*,\s*(?:not|no|nor)\b"),
}


@dataclass
class Prose:
    """The text of a page by its kinds.

    Parameters
    ----------
    paragraphs, items, cells, headings : list of str
        Without markup; code in a line is the word ``Code``.
    """

    paragraphs: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """The sentences of the paragraphs."""
        return [sentence for text in self.paragraphs for sentence in split_sentences(text)]

    @property
    def words(self) -> int:
        """How many words a reader sees."""
        return sum(
            count_words(text) for texts in (self.paragraphs, self.items, self.cells, self.headings) for text in texts
        )


def count_words(text: str) -> int:
    """Return the number of words; a sign alone is none."""
    return len([word for word in text.split() if re.search(r"\w", word)])


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return [sentence for sentence in _SENTENCE_END.split(text) if count_words(sentence)]


def parse_prose(markdown: str) -> Prose:
    """Return the text of a page without its code blocks, comments and markup."""
    text = _COMMENT.sub("", _FENCE.sub("\n\n", markdown))
    prose = Prose(headings=[plain(heading) for heading in _HEADING.findall(text)])
    for part in re.split(r"\n\s*\n", _HEADING.sub("\n\n", text)):
        lines = [line for line in part.splitlines() if line.strip()]
        if not lines:
            continue
        if lines[0].lstrip().startswith("|"):
            rows = [line for line in lines if not re.fullmatch(r"[\s|:-]+", line)]
            prose.cells += [plain(cell) for row in rows for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]
        elif _ITEM.match(lines[0]):
            prose.items += [plain(item) for item in split_items(lines)]
        else:
            prose.paragraphs.append(plain(" ".join(lines)))
    return prose


def split_items(lines: list[str]) -> list[str]:
    """Return the items of a list, each with its continuation lines."""
    items: list[str] = []
    for line in lines:
        if _ITEM.match(line) or not items:
            items.append(_ITEM.sub("", line))
        else:
            items[-1] += f" {line.strip()}"
    return items


def plain(text: str) -> str:
    """Return a text without its markup."""
    text = _IMAGE.sub("", _CODE.sub("Code", text))
    return re.sub(r"[*_]{1,2}(\S(?:[^*_]*\S)?)[*_]{1,2}", r"\1", _LINK.sub(r"\1", text)).strip()


def findings(page: str) -> Iterator[str]:
    """Yield what is wrong with a page's English, each with what to change."""
    prose = parse_prose((ROOT / page).read_text(encoding="utf-8"))
    if page == "README.md":
        words = sum(map(count_words, prose.paragraphs + prose.items))
        if words > MAX_README_WORDS:
            yield f"{words} words without code and tables, more than {MAX_README_WORDS}"
    elif not page.startswith(_REFERENCE) and prose.words > MAX_PAGE_WORDS:
        yield f"{prose.words} words, more than {MAX_PAGE_WORDS}: make two pages of it"
    sentences = prose.sentences
    average = sum(map(count_words, sentences)) / max(1, len(sentences))
    if len(sentences) >= MIN_SENTENCES and average > MAX_SENTENCE_WORDS:
        yield f"{average:.1f} words a sentence on average, more than {MAX_SENTENCE_WORDS:g}: split the longest ones"
    texts = [sentence for text in prose.items + prose.cells for sentence in split_sentences(text)]
    for sentence in [*sentences, *texts]:
        if _HEADLESS.match(sentence):
            yield f"opens with a relative clause, put a noun there: {sentence}"
        for name, pattern in _STUMBLES.items():
            if pattern.search(sentence):
                yield f"{name}, say what is so: {sentence}"


def user_pages() -> list[str]:
    """Return the README and all pages for users."""
    return [page for page in pages() if not page.startswith(_NOT_FOR_USERS)]


def main() -> int:
    """Print the findings of pages; the exit code says if there are any."""
    chosen = sys.argv[1:] or user_pages()
    found = 0
    for page in chosen:
        prose = parse_prose((ROOT / page).read_text(encoding="utf-8"))
        sentences = prose.sentences
        average = sum(map(count_words, sentences)) / max(1, len(sentences))
        print(f"{page}: {prose.words} words, {average:.1f} a sentence")
        if sys.argv[1:]:
            for sentence in sorted(sentences, key=count_words, reverse=True)[:3]:
                print(f"  long ({count_words(sentence)}): {sentence}")
        for finding in findings(page):
            found += 1
            print(f"  {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
