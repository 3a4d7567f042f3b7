from __future__ import annotations

import pytest

from jupyter_exec_ext.auth.rate_limiter import RateLimiter


def test_a_burst_is_spent_and_comes_back_at_its_rate() -> None:
    limiter = RateLimiter(burst=3, per_minute=60, max_keys=10)
    assert [limiter.spend_action("a", 100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limiter.spend_action("a", 100.0) == pytest.approx(1.0)
    assert limiter.spend_action("a", 100.25) == pytest.approx(0.75)
    assert limiter.count_remaining("a", 100.5) == pytest.approx(0.5)
    assert limiter.spend_action("a", 101.0) == 0.0
    assert limiter.spend_action("a", 101.0) > 0
    assert limiter.count_remaining("a", 10_000.0) == 3.0


def test_waiting_as_long_as_told_is_long_enough() -> None:
    limiter = RateLimiter(burst=1, per_minute=7, max_keys=1)
    now = 0.0
    for _ in range(100):
        assert limiter.spend_action("a", now) == 0.0
        wait = limiter.spend_action("a", now)
        assert wait == pytest.approx(60 / 7)
        now += wait + 1e-6


def test_keys_do_not_share_and_looking_spends_nothing() -> None:
    limiter = RateLimiter(burst=1, per_minute=1, max_keys=10)
    assert limiter.spend_action("a", 0.0) == 0.0
    assert [limiter.count_remaining("b", 0.0) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert limiter.spend_action("b", 0.0) == 0.0
    assert limiter.spend_action("a", 0.0) > 0


def test_the_key_unused_for_longest_is_forgotten() -> None:
    limiter = RateLimiter(burst=1, per_minute=1, max_keys=2)
    for key in ("a", "b", "a", "c"):
        limiter.spend_action(key, 0.0)
    assert [limiter.count_remaining(key, 0.0) for key in "abc"] == [0.0, 1.0, 0.0]


def test_a_clock_that_is_set_back_gives_nothing_twice() -> None:
    limiter = RateLimiter(burst=1, per_minute=60, max_keys=2)
    assert limiter.spend_action("a", 100.0) == 0.0
    assert limiter.spend_action("a", 50.0) > 0
    assert limiter.count_remaining("a", 100.0) == 0.0
    assert limiter.count_remaining("a", 101.0) == 1.0


@pytest.mark.parametrize("values", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_rate_limiter_that_allows_nothing_is_a_mistake(values: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RateLimiter(*values)
