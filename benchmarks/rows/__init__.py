"""Measurements, a module each; `ROWS` lists them in the order of the report."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench
from . import (
    checkpoints,
    commands,
    first,
    idle,
    imports,
    memory,
    network,
    outputs,
    sessions,
    standard_api,
    startup,
    streaming,
    tokens,
    warm,
)

ROWS: dict[str, Callable[[Bench], None]] = {
    "first": first.measure,
    "libraries": first.measure_with_libraries,
    "warm": warm.measure,
    "outputs": outputs.measure,
    "streaming": streaming.measure,
    "sessions": sessions.measure,
    "idle": idle.measure,
    "memory": memory.measure,
    "tokens": tokens.measure,
    "standard_api": standard_api.measure,
    "network": network.measure,
    "checkpoints": checkpoints.measure,
    "startup": startup.measure,
    "imports": imports.measure,
    "commands": commands.measure,
}
