"""Health of the store: current faults, damage of the database, and alarms for the administrator."""

from __future__ import annotations

import logging
from typing import Any, TypeAlias

from ..errors import StoreUnavailable
from .database import damage_message

# A text, since Python 3.10 cannot subscript `LoggerAdapter`.
Log: TypeAlias = "logging.Logger | logging.LoggerAdapter[Any]"


class StoreHealth:
    """Present and lasting faults of the store; each change is logged.

    Attributes
    ----------
    alarm : str or None
        A message for the administrator that no later success withdraws.
    damage : str or None
        The damage of the database in use. Only a restart withdraws it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._troubles: dict[str, str] = {}
        self.alarm: str | None = None
        self.damage: str | None = None

    @property
    def trouble(self) -> str | None:
        """The present faults; None if the last attempt of every kind of work succeeded."""
        # Copied in one step, because several threads report.
        return "; ".join(list(self._troubles.values())) or None

    def report(self, trouble: str | None, work: str = "database") -> None:
        """Record the outcome of an attempt.

        Parameters
        ----------
        trouble : str or None
            The fault; None after a success.
        work : str
            The kind of work. A success withdraws the fault of its own kind only.
        """
        if trouble == self._troubles.get(work):
            return
        if trouble is not None:
            self._troubles[work] = trouble
            self._log.error("store: %s", trouble)
        else:
            self._troubles.pop(work, None)
            if not self._troubles:
                self._log.warning("store: works again")

    def raise_alarm(self, alarm: str) -> None:
        """Record a message for the administrator that stays until the next start."""
        self.alarm = alarm
        self._log.critical("store: %s", alarm)

    def report_damage(self, found: str) -> None:
        """Record that the database in use is damaged."""
        if self.damage is None:
            self.damage = damage_message(found)
            self._log.critical("store: %s", self.damage)

    def require_undamaged(self) -> None:
        """Refuse to use a damaged database: every write to it would be lost.

        Raises
        ------
        StoreUnavailable
            If the database is damaged.
        """
        if self.damage is not None:
            raise StoreUnavailable(self.damage)
