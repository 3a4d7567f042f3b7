"""A run as a picture: medians by table, on a logarithmic scale, ours in colour. Pure: the picture is text, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .contender_table import ASYNC_CLIENT, CLIENT, CLIENT_RUN, EXECUTOR
from .results import Results, Series

_OURS, _THEIRS = "#2a78b8", "#b4b4b4"
_WIDTH, _LABEL, _BAR = 860, 300, 460
_LINE, _GAP = 17, 42
_MOST_TABLES = 8


def is_ours(contender: str) -> bool:
    """Whether a contender is one of ours."""
    return contender.partition(":")[0] in (CLIENT, CLIENT_RUN, ASYNC_CLIENT, EXECUTOR)


def drawn(results: Results) -> list[tuple[str, list[Series]]]:
    """Return the tables that are drawn: of times in which one of ours meets somebody else."""
    tables = [one for one in results.tables() if one[1][0].unit == "ms"]
    return [one for one in tables if len({is_ours(each.contender) for each in one[1]}) == 2][:_MOST_TABLES]


def svg(results: Results) -> str:
    """Return the picture, with a bar for each contender of each table."""
    parts: list[str] = []
    top = 0
    for name, series in drawn(results):
        parts.append(_text(8, top + 26, name.replace("`", ""), "font-weight='bold'"))
        parts += _bars(series, top + _GAP - 6)
        top += _GAP + _LINE * len(series)
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {top + 10}' width='{_WIDTH}' "
        "font-family='sans-serif' font-size='12'>"
    )
    return "\n".join([head, f"<rect width='{_WIDTH}' height='{top + 10}' fill='white'/>", *parts, "</svg>"]) + "\n"


def _bars(series: Sequence[Series], top: int) -> list[str]:
    ordered = sorted(series, key=lambda one: one.summary.median)
    medians = [one.summary.median for one in ordered]
    low = math.log10(medians[0]) - 0.3  # so that the shortest bar can be seen
    scale = _BAR / (math.log10(medians[-1]) - low)
    parts = []
    for number, (one, median) in enumerate(zip(ordered, medians, strict=True)):
        line = top + number * _LINE
        length = (math.log10(median) - low) * scale
        fill = _OURS if is_ours(one.contender) else _THEIRS
        parts += [
            _text(_LABEL - 6, line + 12, one.contender, "text-anchor='end'"),
            f"<rect x='{_LABEL}' y='{line + 2}' width='{length:.1f}' height='{_LINE - 4}' fill='{fill}'/>",
            _text(_LABEL + length + 5, line + 12, f"{median:.3g} ms", "fill='#444'"),
        ]
    return parts


def _text(x: float, y: float, text: str, more: str) -> str:
    return f"<text x='{x:.1f}' y='{y}' {more}>{escape(text)}</text>"
