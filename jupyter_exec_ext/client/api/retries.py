"""Retries: when a request is sent again, how long a client waits before that, and when it gives up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from .steps import Pause

#: The longest pause between two requests during an outage.
MAX_OUTAGE_PAUSE_SECONDS = 2.0
#: Long enough for a restart of a JupyterHub's proxy.
DEFAULT_OUTAGE_SECONDS = 60.0
# A server that asks for more would make a call hang for longer than its caller expects.
_MAX_RETRY_AFTER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a request is repeated.

    Parameters
    ----------
    max_retries : int
        The most retries of one step; for a stream, without any progress in between.
    base_seconds : float
        The first pause. Each one is twice as long as the one before, with jitter.
    max_seconds : float
        The longest pause.
    outage_seconds : float
        Time of retries during an outage: a server that has answered before cannot be reached, or a proxy answers.
    why_lost : callable, optional
        Called during an outage, from any thread. It returns the reason if the server will not come back, else None.
    """

    max_retries: int = 4
    base_seconds: float = 0.1
    max_seconds: float = 5.0
    outage_seconds: float = DEFAULT_OUTAGE_SECONDS
    why_lost: Callable[[], str | None] | None = None

    def pause(self, attempt: int, retry_after: str | None = None) -> Pause:
        """Return the pause after failed attempt number `attempt`, from 0; `retry_after` is the server's wish."""
        if retry_after is not None and retry_after.isdecimal():  # an HTTP date is ignored
            return Pause(min(float(retry_after), _MAX_RETRY_AFTER_SECONDS))
        return pause_with_jitter(min(self.max_seconds, self.base_seconds * 2**attempt))


def pause_with_jitter(seconds: float, low: float = 0.5, high: float = 1.0) -> Pause:
    """Return a pause of `low` to `high` times `seconds`, or all clients of a server would come back at once."""
    return Pause(seconds * random.uniform(low, high))  # noqa: S311  # not a secret


DEFAULT_RETRY = RetryPolicy()
NO_RETRY = RetryPolicy(max_retries=0, outage_seconds=0.0)


class RetryBudget:
    """Retries that are left for one request or one stream.

    Parameters
    ----------
    retry : RetryPolicy
        The policy.
    outages : bool
        Whether the server has answered before, so that the client waits for the end of an outage.
    """

    def __init__(self, retry: RetryPolicy, *, outages: bool) -> None:
        self._retry = retry
        self._waits_for_outages = outages and retry.outage_seconds > 0
        self._attempts = 0
        self._began_at = self._paused_seconds = 0.0

    def renew(self) -> None:
        """Start again with all retries, after progress."""
        self._attempts = 0

    def pause(self, *, outage: bool, retry_after: str | None = None) -> Pause | None:
        """Return the pause before the next attempt, or None if no retries are left.

        Parameters
        ----------
        outage : bool
            Whether the server could not be reached or a proxy answered; otherwise the server is busy.
        retry_after : str, optional
            The answer's Retry-After header.
        """
        attempt, self._attempts = self._attempts, self._attempts + 1
        if attempt == 0:
            self._began_at, self._paused_seconds = time.monotonic(), 0.0
        pause = self._next_pause(attempt, outage and self._waits_for_outages, retry_after)
        if pause is not None:
            self._paused_seconds += pause.seconds
        return pause

    def _next_pause(self, attempt: int, is_outage: bool, retry_after: str | None) -> Pause | None:
        if attempt < self._retry.max_retries:
            pause = self._retry.pause(attempt, retry_after)
            return Pause(min(pause.seconds, MAX_OUTAGE_PAUSE_SECONDS)) if is_outage else pause
        # The clock also counts requests that fail slowly. The sum bounds drivers that do not sleep, as those of tests.
        spent_seconds = max(time.monotonic() - self._began_at, self._paused_seconds)
        if is_outage and spent_seconds < self._retry.outage_seconds:
            return pause_with_jitter(MAX_OUTAGE_PAUSE_SECONDS)
        return None
