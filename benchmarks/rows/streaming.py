"""Streamed output: the cost of an event, and the rate at which 100 MB pass."""

from __future__ import annotations

from dataclasses import replace

from ..bench import Bench, Handle
from ..contender_table import ASYNC_CLIENT, DIRECT, POST_AIOHTTP, WEBSOCKET, of_ours

EVENTS_TABLE = "2,000 flushed prints, streamed, per event"
FLOOD_TABLE = "100 MB of stdout through server-sent events"
OURS = of_ours(ASYNC_CLIENT, "plain", "--ExecEngine.max_output_bytes=268435456")
POST = replace(POST_AIOHTTP, label="trivial Tornado handler, the same bytes (aiohttp)")

_EVENTS = 2000
_FLUSHED = f"for number in range({_EVENTS}): print(number, flush=True)"
_FLUSHED_CHARACTERS = sum(len(f"{number}\n") for number in range(_EVENTS))
_LINE = 100_000


def measure(bench: Bench) -> None:
    """Measure both."""
    with bench.made(bench.available([OURS, WEBSOCKET, DIRECT])) as handles:

        def per_event(handle: Handle) -> float:
            return received(handle, _FLUSHED, _FLUSHED_CHARACTERS) / _EVENTS * 1e3

        bench.results.add(EVENTS_TABLE, "µs", bench.interleave(handles, per_event, bench.times(0.5), warm_up=2))
    size = bench.scaled(100_000_000, 2_000_000)
    code = f"import sys\nfor _ in range({size // _LINE}): sys.stdout.write('x' * {_LINE - 1} + '\\n')"
    with bench.made(bench.available([OURS, DIRECT, POST])) as handles:

        def throughput(handle: Handle) -> float:
            what: object = size if handle.contender is POST else code
            return size / 1e6 / (received(handle, what, size) / 1e3)

        samples = bench.interleave(handles, throughput, bench.times(0.25))
        bench.results.add(FLOOD_TABLE, "MB/s", samples)


def received(handle: Handle, what: object, characters: int) -> float:
    """Return the milliseconds until everything has come, as it came where that is possible."""
    if handle.contender is DIRECT:
        return handle.timed("run", lambda value: value["length"] == characters, what)
    return handle.timed("stream", lambda value: value["characters"] >= characters, what)
