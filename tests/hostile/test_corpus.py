"""A tenth of the hostile corpus, each trick in one kind of kernel; `python -m tests.full corpus` runs it whole."""

from __future__ import annotations

import pytest

from .campaign import Campaign, campaign_directory
from .connections import CONNECTIONS
from .corpus import CASES, KINDS, TRICKS, choose
from .files import FILES
from .messages import MESSAGES
from .server import Limits, LogSizes, log_sizes
from .trick import count_names

#: A tenth of the tricks, each in one kind of kernel, the kinds in turn: 30 would always choose the same kind.
PART = 31
QUICK = Limits(run_seconds=1.0, flood_seconds=0.2)


def test_corpus_has_its_size() -> None:
    assert count_names(MESSAGES) + count_names(CONNECTIONS) >= 150
    assert count_names(FILES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


def test_each_trick_is_python() -> None:
    for trick in TRICKS:
        compile(trick.code, trick.name, "exec")


def test_each_part_has_all_kinds_and_all_together_are_the_corpus() -> None:
    parts = [choose(every=PART, offset=offset) for offset in range(PART)]
    assert all({case.kind for case in part} == set(KINDS) for part in parts)
    assert sorted(case.name for part in parts for case in part) == sorted(case.name for case in CASES)


def test_log_is_measured_without_lines_about_sessions() -> None:
    kernel = b"a6fc5666-50ea-4124-a192-c7320dedb28c"
    about = b"[I 2026-11-26 06:11:09.953 ServerApp] Kernel started: " + kernel + b"\n"
    about += b"[I 2026-11-26 06:11:11.752 ExecExtensionApp] session ses_5e13: kernel " + kernel + b" (python3)\n"
    other = b"[I 2026-11-26 06:11:11.752 ServerApp] kernel x: Kernel started: " + kernel + b"\nTraceback\n"
    assert log_sizes(about + other) == LogSizes(len(about), len(other))


@pytest.mark.needs("sandbox", "Landlock")
def test_a_tenth_of_the_corpus_costs_others_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with campaign_directory() as home:
        campaign = Campaign(home, QUICK)
        cases = choose(every=PART)
        campaign.round(cases)
        campaign.check_records()
    with capsys.disabled():
        print(f"\nhostile corpus: {campaign.figures.as_json()}")
    assert len(campaign.figures.outcomes) == len(cases)
    assert campaign.figures.others_runs > 20
    assert campaign.figures.violations(waits=False) == []
