"""Write the tables of docs/admin/sizing.md, which are made from the report of the benchmarks.

python tools/make_sizing.py            rewrite the table
python tools/make_sizing.py --check    exit with 1 if it is not up to date
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "admin" / "sizing.md"
REPORT = ROOT / "docs" / "contributing" / "performance" / "report.json"
BEGIN = "<!-- made from the report by tools/make_sizing.py -->\n"
BEGIN_POOL = "<!-- servers of a pool, made from the report by tools/make_sizing.py -->\n"
END = "<!-- until here -->\n"
AGENTS = (100, 250, 500, 1000)


@dataclass(frozen=True)
class Row:
    """A row of the table: a contender of a table of the report, and an administrator's words for it.

    Parameters
    ----------
    words, kernel : str
        The cells before the figure.
    table, contender : str
        The series of the report.
    """

    words: str
    kernel: str
    table: str
    contender: str


_MEMORY = "memory of a further idle session (PSS)"
_MEMORY_WITH_LIBRARIES = "memory of a further idle session with numpy and pandas imported (PSS)"
_FIRST = "fresh session to first `print(1)`"
_START = "start of a server to its first answer"
ROWS = (
    Row("memory of an idle session", "plain", _MEMORY, "AsyncExecClient: plain"),
    Row("memory of an idle session", "forked", _MEMORY, "AsyncExecClient: fork"),
    Row("the same with numpy and pandas", "plain", _MEMORY_WITH_LIBRARIES, "AsyncExecClient: plain"),
    Row("the same with numpy and pandas", "forked", _MEMORY_WITH_LIBRARIES, "AsyncExecClient: fork with libraries"),
    Row(
        "processor of 200 idle sessions with their server (100 % is one core)",
        "forked",
        "processor used by 200 idle sessions and their server",
        "fork",
    ),
    *(
        Row(
            f"short runs a second, {count} {'session' if count == 1 else 'sessions'} at once",
            "plain",
            f"{count} session{'' if count == 1 else 's'} at once, `print(1)`: executions a second",
            "AsyncExecClient: plain",
        )
        for count in (1, 4, 16, 64)
    ),
    Row("new session to its first result", "plain", _FIRST, "ExecClient: plain"),
    Row("new session to its first result", "sandboxed", _FIRST, "ExecClient: sandbox"),
    Row("new session to its first result", "sandboxed, from the pool", _FIRST, "ExecClient: sandbox + pool"),
    Row("new session to its first result", "forked", _FIRST, "ExecClient: fork"),
    Row("new session to its first result", "forked, from the pool", _FIRST, "ExecClient: fork + pool"),
    Row("start of a Jupyter Server", "", _START, "Jupyter Server with it"),
    Row("start of a Kernel Gateway", "", _START, "Kernel Gateway with our personality"),
)


def _shown(median: float, unit: str) -> str:
    if unit == "ms" and median >= 1000:
        median, unit = median / 1000, "s"
    return f"{median:.3g} {unit}"


def make_table() -> str:
    """Return the table, with the machine that its figures are from.

    Raises
    ------
    KeyError
        If the report has no such series.
    """
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    series = {(one["table"], one["contender"]): one for one in report["series"]}
    machine = report["machine"]
    lines = ["| measured | kernels | median |", "|---|---|---|"]
    for row in ROWS:
        one = series[row.table, row.contender]
        lines.append(f"| {row.words} | {row.kernel} | {_shown(one['median'], one['unit'])} |".replace("|  |", "| |"))
    memory = round(machine["memory_bytes"] / 1024**3)
    date, cores, python = machine["date"][:10], machine["cores"], machine["python"]
    lines += ["", f"The machine of {date} had {cores} cores, {memory} GiB of memory and Python {python}."]
    return "\n".join(lines) + "\n"


def make_pool_table() -> str:
    """Return the table of a pool's servers and memory for numbers of agents with a session each."""
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    memory = {one["contender"]: one["median"] for one in report["series"] if one["table"] == _MEMORY}
    lines = [
        "| agents | servers of 100 sessions | servers of 250 sessions | memory, plain | memory, forked |",
        "|---|---|---|---|---|",
    ]
    for agents in AGENTS:
        servers = [-(agents // -size) for size in (100, 250)]
        gigabytes = [agents * memory[f"AsyncExecClient: {kind}"] / 1000 for kind in ("plain", "fork")]
        cells = [f"{agents:,}", *map(str, servers), *(f"{size:.3g} GB" for size in gigabytes)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def updated_page(text: str) -> str:
    """Return the page with both tables in their places; raise `ValueError` if one of the marks is missing."""
    for mark, table in ((BEGIN, make_table()), (BEGIN_POOL, make_pool_table())):
        before, _, rest = text.partition(mark)
        _, end, after = rest.partition(END)
        if not end:
            raise ValueError(f"{PAGE} has no {mark.strip()} with {END.strip()} after it")
        text = f"{before}{mark}\n{table}\n{END}{after}"
    return text


def main() -> int:
    """Write the page, or check it."""
    text = PAGE.read_text(encoding="utf-8")
    made = updated_page(text)
    if "--check" in sys.argv[1:]:
        if made == text:
            return 0
        print(f"{PAGE.relative_to(ROOT)} has other numbers: run `python tools/make_sizing.py`", file=sys.stderr)
        return 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
