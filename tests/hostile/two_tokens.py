"""Two tokens beside each other: one plays all of the corpus for ten minutes, the other one's runs are all `ok`."""

from __future__ import annotations

from collections.abc import Callable

from .attacker import Outcome
from .campaign import Campaign, Figures, campaign_directory
from .corpus import Case
from .server import Limits

#: How many sessions the hostile token has at once.
SESSIONS = 3
SECONDS = 600.0
#: How many runs of the other token there must be.
RUNS = 1000


def run_two_tokens(
    cases: list[Case],
    limits: Limits,
    *,
    seconds: float = SECONDS,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> Figures:
    """Run all cases of sandboxed kernels with one token, again and again, beside another token.

    Parameters
    ----------
    cases : list of Case
        The corpus.
    seconds : float
        How long the one is hostile, at least; each case is run once in any case.
    """
    sandboxed = [case for case in cases if case.kind == "sandbox"]
    with campaign_directory() as home:
        campaign = Campaign(home, limits, lanes=["sandbox"] * SESSIONS, report=report)
        campaign.round(sandboxed, seconds=seconds)
        campaign.check_records()
    return campaign.figures
