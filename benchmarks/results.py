"""The records of a run: series of samples by row and contender, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .stats import Summary, summary, thinned

_MOST_SAMPLES = 200


@dataclass
class Series:
    """What one contender gave in one table of the report.

    Parameters
    ----------
    table : str
        The table's name, such as ``print(1)``.
    contender : str
        Whose samples these are.
    unit : str
        ``ms``, ``MB/s``, ``runs/s``, ``MB``, ``%`` or ``µs``.
    samples : list of float
        In the order in which they were taken.
    """

    table: str
    contender: str
    unit: str
    samples: list[float]

    @property
    def summary(self) -> Summary:
        """Its quantiles."""
        return summary(self.samples)

    def as_json(self) -> dict[str, Any]:
        """Return it for the file: quantiles of all samples, and the samples, thinned out where they are many."""
        quantiles = {name: float(f"{value:.5g}") for name, value in vars(self.summary).items()}
        head = {"table": self.table, "contender": self.contender, "unit": self.unit}
        return head | quantiles | {"count": len(self.samples), "samples": thinned(self.samples, _MOST_SAMPLES)}


@dataclass
class Results:
    """All that a run found out."""

    series: list[Series] = field(default_factory=list)
    # By contender: why it is in no table, or not in one of them.
    left_out: dict[str, str] = field(default_factory=dict)
    # By contender, a peer: what it did wrong, each time.
    failures: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, table: str, unit: str, samples: dict[str, list[float]]) -> None:
        """Add what the contenders of a table gave."""
        self.series += [Series(table, name, unit, values) for name, values in samples.items() if values]

    def get(self, table: str, contender: str) -> Series | None:
        """Return what a contender gave, if it was measured."""
        return next((one for one in self.series if (one.table, one.contender) == (table, contender)), None)

    def tables(self) -> Iterator[tuple[str, list[Series]]]:
        """Yield each table with its series, in the order in which they were measured."""
        for table in dict.fromkeys(one.table for one in self.series):
            yield table, [one for one in self.series if one.table == table]
