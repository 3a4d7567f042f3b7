"""Patience with a server that does not answer: how often, and for how long, one request is repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from .steps import Pause

#: The longest pause before a server is asked again that did answer before.
MAX_OUTAGE_PAUSE_SECONDS = 2.0
DEFAULT_OUTAGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to try again.

    Parameters
    ----------
    max_retries : int
        How often, at most, one step is repeated; for a stream, without any progress in between.
    base_seconds, max_seconds : float
        The pause doubles from the one to the other, with jitter.
    outage_seconds : float
        For how long a server that has answered before is asked again, while it cannot be reached or something else
        answers in its place.
    why_lost : callable, optional
        Asked meanwhile, from any thread: why the server will not come back, or None if it may.
    """

    max_retries: int = 4
    base_seconds: float = 0.1
    max_seconds: float = 5.0
    outage_seconds: float = DEFAULT_OUTAGE_SECONDS
    why_lost: Callable[[], str | None] | None = None

    def pause(self, attempt: int, retry_after: str | None = None) -> Pause:
        """Return how long to wait after failed attempt number `attempt`, from 0."""
        if retry_after is not None and retry_after.isdecimal():
            return Pause(min(float(retry_after), 60.0))
        ceiling = min(self.max_seconds, self.base_seconds * 2**attempt)
        return Pause(ceiling * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret


DEFAULT_RETRY = RetryPolicy()
NO_RETRY = RetryPolicy(max_retries=0, outage_seconds=0.0)


class Patience:
    """Patience that is left with one request, or one stream.

    Parameters
    ----------
    outages : bool
        Whether the server has answered before, so that an outage is waited for.
    """

    def __init__(self, retry: RetryPolicy, *, outages: bool) -> None:
        self._retry = retry
        self._outages = outages and retry.outage_seconds > 0
        self._attempts = 0
        self._began = self._paused_seconds = 0.0

    def renew(self) -> None:
        """Begin anew: there was progress."""
        self._attempts = 0

    def pause(self, *, outage: bool, retry_after: str | None = None) -> Pause | None:
        """Return how long to wait before the next attempt, or None if there shall be none.

        Parameters
        ----------
        outage : bool
            Whether the server could not be reached, or something else answered; otherwise it is just busy.
        retry_after : str, optional
            What the answer says of this.
        """
        attempt, self._attempts = self._attempts, self._attempts + 1
        if attempt == 0:
            self._began, self._paused_seconds = time.monotonic(), 0.0
        pause = self._next(attempt, outage and self._outages, retry_after)
        if pause is not None:
            self._paused_seconds += pause.seconds
        return pause

    def _next(self, attempt: int, waits: bool, retry_after: str | None) -> Pause | None:
        if attempt < self._retry.max_retries:
            pause = self._retry.pause(attempt, retry_after)
            return Pause(min(pause.seconds, MAX_OUTAGE_PAUSE_SECONDS)) if waits else pause
        spent_seconds = max(time.monotonic() - self._began, self._paused_seconds)
        if waits and spent_seconds < self._retry.outage_seconds:
            return Pause(MAX_OUTAGE_PAUSE_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret
        return None
