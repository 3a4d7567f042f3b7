"""Interfaces that a run calls: one receives its output, the other explains why its kernel died."""

from __future__ import annotations

from typing import Protocol

from ...models import OutputEvent
from ..kernels.death_report import Death
from ..ports import KernelExit


class OutputSink(Protocol):
    """Receiver of the output events of a run."""

    def emit(self, event: OutputEvent) -> None:
        """Accept one event."""

    def note_begin(self, execution_count: int | None) -> None:
        """Note that the kernel has begun to run the code, under this count."""


class DeathExplainer(Protocol):
    """Source of the reason why a kernel died."""

    async def explain(self, exit_: KernelExit) -> Death:
        """Return the reason."""
