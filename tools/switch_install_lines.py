"""Switch all install lines from a clone of the repository to the released package, on the day of the first release.

python -m tools.switch_install_lines

It rewrites README.md and the pages in docs/, except those for contributors, and sets `package_is_released` in
docs/conf.py. A second run changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from exec_docs.install_lines import FOR_CONTRIBUTORS, take_package_from_index

_BEFORE, _AFTER = "package_is_released = False\n", "package_is_released = True\n"


def pages_of_users(root: Path) -> Iterator[Path]:
    """Yield README.md and all pages that are not for contributors."""
    yield root / "README.md"
    docs = root / "docs"
    for page in sorted(docs.rglob("*.md")):
        name = page.relative_to(docs).as_posix()
        if not name.startswith((*FOR_CONTRIBUTORS, "_")):
            yield page


def switch_install_lines(root: Path) -> list[Path]:
    """Rewrite the pages and the switch.

    Parameters
    ----------
    root : Path
        The repository.

    Returns
    -------
    list of Path
        The files that changed.

    Raises
    ------
    ValueError
        If docs/conf.py has the switch in another form. Then no file changes.
    """
    conf = root / "docs" / "conf.py"
    settings = conf.read_text(encoding="utf-8")
    if _BEFORE not in settings and _AFTER not in settings:
        raise ValueError(f"{conf} has no line {_BEFORE.strip()!r} and none {_AFTER.strip()!r}; write one of them")
    changed = []
    for page in pages_of_users(root):
        before = page.read_text(encoding="utf-8")
        after = take_package_from_index(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    if _BEFORE in settings:
        conf.write_text(settings.replace(_BEFORE, _AFTER), encoding="utf-8")
        changed.append(conf)
    return changed


if __name__ == "__main__":
    for path in switch_install_lines(ROOT):
        print(path.relative_to(ROOT))
