"""Statistics of samples: summaries, quantiles and histograms. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Quantiles of a series."""

    count: int
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    p99: float
    maximum: float


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the value below which a share of the samples lies, between two of them where it is between two."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def summary(samples: Sequence[float]) -> Summary:
    """Return the quantiles of samples, of which there must be one at least."""
    if not samples:
        raise ValueError("there are no samples")
    low, middle, high, rare = (quantile(samples, share) for share in (0.25, 0.5, 0.75, 0.99))
    return Summary(len(samples), min(samples), low, middle, high, rare, max(samples))


def histogram(samples: Sequence[float], width: float) -> list[tuple[float, int]]:
    """Return where each bin with samples begins, and how many it has, in order."""
    counts = Counter(math.floor(sample / width) for sample in samples)
    return [(number * width, counts[number]) for number in sorted(counts)]


def rounded(value: float, digits: int = 4) -> float:
    """Return a value with so many digits that matter."""
    return float(f"{value:.{digits}g}")


def thinned(samples: Sequence[float], most: int) -> list[float]:
    """Return samples in their order or, where they are more than so many, their quantiles at even distances."""
    if len(samples) <= most:
        return [rounded(sample) for sample in samples]
    return [rounded(quantile(samples, place / (most - 1))) for place in range(most)]
