"""Runs with much output: one large text, many small ones, a picture."""

from __future__ import annotations

from typing import Any

from ..bench import Bench, Handle
from ..contender_table import ASYNC_CLIENT, CLIENT, DIRECT, DIRECT_ASYNC, EXECUTOR, PEERS, of_ours

TEXT_TABLE, PRINTS_TABLE, PICTURE_TABLE = "1 MB of stdout", "10,000 small prints", "5 MB picture"
CONTESTANTS = (of_ours(CLIENT), of_ours(ASYNC_CLIENT), of_ours(EXECUTOR), DIRECT, DIRECT_ASYNC, *PEERS)

_TEXT_CHARACTERS = 1_000_000
_TEXT = f"print('x' * {_TEXT_CHARACTERS - 1})"
_PRINTS = 10_000
_PRINTING = f"for number in range({_PRINTS}): print(number)"
_PRINTED_CHARACTERS = sum(len(f"{number}\n") for number in range(_PRINTS))
_PICTURE_BYTES = 5_000_000
# Not a real picture: nobody on the way looks into it, and it has to be random to be the same for who compresses.
_PREPARE = f"""
import os
from IPython.display import Image, display
data = b"\\x89PNG\\r\\n\\x1a\\n" + os.urandom({_PICTURE_BYTES - 8})
"""
_PICTURE = "display(Image(data=data, format='png'))"


def measure(bench: Bench) -> None:
    """Measure all three."""
    with bench.made(bench.available(CONTESTANTS)) as handles:
        for table, code, characters in (
            (TEXT_TABLE, _TEXT, _TEXT_CHARACTERS),
            (PRINTS_TABLE, _PRINTING, _PRINTED_CHARACTERS),
        ):

            def run(handle: Handle, code: str = code, characters: int = characters) -> float:
                return handle.timed("run", lambda value: is_about(value, characters), code)

            bench.results.add(table, "ms", bench.interleave(handles, run, bench.times(0.75), warm_up=2))
        for handle in handles:
            handle.call("run", _PREPARE)

        def show(handle: Handle) -> float:
            return handle.timed("image", lambda value: value == _PICTURE_BYTES, _PICTURE)

        bench.results.add(PICTURE_TABLE, "ms", bench.interleave(handles, show, bench.times(0.5)))


def is_about(value: dict[str, Any], characters: int) -> bool:
    """Whether a text has its length, but for a line's end at its end."""
    return bool(characters - 1 <= value["length"] <= characters + 1)
