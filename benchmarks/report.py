"""Report of a run in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .contender_table import AUTOGEN, DIRECT, WEBSOCKET
from .goals import Goal
from .results import Results, Series
from .stats import histogram

_LOWER_IS_BETTER = {"ms", "µs", "MB", "MiB", "%"}
_BIN_MS = 10.0
# With whom the others are compared, and whether to say how many times as long it takes.
_REFERENCES = {
    AUTOGEN.label: ("AutoGen 0.2", True),
    WEBSOCKET.label: ("gateway", True),
    DIRECT.label: ("direct loop", False),
}


def markdown(results: Results, machine: Mapping[str, Any], goals: Iterable[Goal], command: str) -> str:
    """Return the report.

    Parameters
    ----------
    machine : mapping
        What `benchmarks.machine.description` returns, and the load at the end.
    goals : iterable of Goal
        What is promised.
    command : str
        What made it.
    """
    about = (
        f"Made by `{command}`; the samples are in [report.json](report.json). Contenders take turns within each table, "
        "in an order that rotates, so that a slow moment hits all alike: compare ratios; the times are one machine's."
    )
    parts = [
        "# Benchmarks",
        about,
        machine_text(machine),
        "![Medians by table](plot.svg)",
        goals_text(results, goals),
        *(table_text(table, series, results.notes.get(table)) for table, series in results.tables()),
        distribution_text([one for one in results.series if one.unit == "ms" and one.contender == AUTOGEN.label]),
        failures_text(results.failures),
        left_out_text(results.left_out),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def machine_text(machine: Mapping[str, Any]) -> str:
    """Return the machine in a paragraph."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())
    before, after = (numbers(machine[f"load_average_{when}"]) for when in ("before", "after"))
    about = (
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}, {machine['seconds'] / 60:.0f} minutes: "
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, Python {machine['python']}; load average {before} before and {after} after. {versions}."
    )
    peers = [
        f"- {name}: {', '.join(f'{package} {version}' for package, version in found.items())}"
        for name, found in machine.get("peers", {}).items()
    ]
    return "\n".join([about, *(["", "Environments of peers:", "", *peers] if peers else [])])


def goals_text(results: Results, goals: Iterable[Goal]) -> str:
    """Return what is promised, and whether it holds, in a table."""
    lines = ["## What must hold", "", "| what | goal | reached | holds |", "|---|---|---|---|"]
    for goal in goals:
        figure, holds = goal.figure(results), goal.holds(results)
        reached = "not measured" if figure is None else f"{number(figure)} {goal.unit}"
        verdict = {True: "yes", False: "**no**", None: "not known"}[holds]
        lines.append(f"| {goal.what} | {goal.bound} | {reached} | {verdict} |")
    return "\n".join(lines)


def table_text(table: str, series: Sequence[Series], note: str | None) -> str:
    """Return one table, the best contender first, with its ratios to those that are named, or else to the best."""
    unit = series[0].unit
    is_cost = unit in _LOWER_IS_BETTER
    ordered = sorted(series, key=lambda one: one.summary.median, reverse=not is_cost)
    medians = {one.contender: one.summary.median for one in ordered}
    references = {name: _REFERENCES[name] for name in _REFERENCES if name in medians}
    references = references or {ordered[0].contender: ("the best", False)}
    inverted = {name: is_slow and is_cost for name, (_, is_slow) in references.items()}
    single = all(len(one.samples) == 1 for one in series)
    head = ["", unit if single else f"median {unit}", *([] if single else ["quartiles", "p99", "samples"])]
    head += [f"{called} / this" if inverted[name] else f"this / {called}" for name, (called, _) in references.items()]
    rows = []
    for one in ordered:
        found = one.summary
        row = [one.contender, number(found.median)]
        if not single:
            quartiles = f"{number(found.lower_quartile)} to {number(found.upper_quartile)}"
            row += [quartiles, number(found.p99), str(found.count)]
        ratios = {name: found.median / medians[name] for name in references}
        rows.append(row + [number(1 / ratio if inverted[name] else ratio) for name, ratio in ratios.items()])
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    told = ["", f"{note[0].upper()}{note[1:]}."] if note else []
    return "\n".join([f"## {table[0].upper()}{table[1:]}", "", *lines, *told])


def distribution_text(series: Iterable[Series]) -> str:
    """Return how AutoGen's times are spread: it waits for one delayed acknowledgement of 40 ms, or for two."""
    lines = [
        f"| {one.table} | "
        + ", ".join(f"{start:g} to {start + _BIN_MS:g} ms: {count}" for start, count in histogram(one.samples, _BIN_MS))
        + " |"
        for one in series
    ]
    if not lines:
        return ""
    about = (
        "Its path writes small packets without TCP_NODELAY, so that a run waits for one delayed acknowledgement "
        "(40 ms) or for two; which, depends on the moment and the machine. A median alone hides that:"
    )
    return "\n".join(["## How AutoGen 0.2's times are spread", "", about, "", "| | samples |", "|---|---|", *lines])


def failures_text(failures: Mapping[str, Sequence[str]]) -> str:
    """Return what peers did wrong: errors and wrong results, which are no samples."""
    lines = [f"- {name}, {len(found)} times: {escaped(found[0])}" for name, found in failures.items()]
    return "\n".join(["## Wrong results and errors of peers", "", *lines]) if lines else ""


def escaped(text: str) -> str:
    """Return a text as it stands, in a line of Markdown."""
    return f"`{text[:200].replace('`', chr(39))}`"


def left_out_text(left_out: Mapping[str, str]) -> str:
    """Return who was not measured, and why."""
    if not left_out:
        return ""
    lines = [f"- {name}: {reason.splitlines()[0]}" for name, reason in left_out.items()]
    return "\n".join(["## Left out", "", *lines])


def number(value: float) -> str:
    """Return a number with three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def numbers(values: Iterable[float]) -> str:
    """Return numbers in a row."""
    return ", ".join(f"{value:g}" for value in values)
