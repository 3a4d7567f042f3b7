"""A run as a picture: medians by table, each as a ratio to the best."""

from __future__ import annotations

from pathlib import Path

from .contestants import ASYNC_CLIENT, CLIENT, EXECUTOR
from .results import Results

_OURS, _THEIRS = "#1f77b4", "#b8b8b8"
_MOST_TABLES = 8


def is_ours(contender: str) -> bool:
    """Whether a contender is one of ours."""
    return contender.partition(":")[0] in (CLIENT, ASYNC_CLIENT, EXECUTOR)


def draw(results: Results, target: Path) -> None:
    """Draw the tables of times with more than one contender, on a logarithmic scale, ours in colour."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "benchmarks"  # the same picture for the same figures
    from matplotlib import pyplot

    tables = [(name, series) for name, series in results.tables() if series[0].unit == "ms" and len(series) > 1]
    tables = [one for one in tables if any(is_ours(each.contender) for each in one[1])][:_MOST_TABLES]
    if not tables:
        return
    heights = [len(series) for _, series in tables]
    figure, axes = pyplot.subplots(
        len(tables), 1, figsize=(10, 0.28 * sum(heights) + 0.8 * len(tables)), height_ratios=heights, squeeze=False
    )
    for axis, (name, series) in zip(axes[:, 0], tables, strict=True):
        ordered = sorted(series, key=lambda one: one.summary.median, reverse=True)
        medians = [one.summary.median for one in ordered]
        colours = [_OURS if is_ours(one.contender) else _THEIRS for one in ordered]
        bars = axis.barh([one.contender for one in ordered], medians, color=colours)
        axis.bar_label(bars, [f"{median:.3g} ms" for median in medians], padding=3, fontsize=7)
        axis.set(xscale="log", title=name.replace("`", ""))
        axis.title.set_size(9)
        axis.tick_params(labelsize=7)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)
