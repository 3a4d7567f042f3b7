"""Jupyter's own kernels API: the warm round trip at `exec/jupyter` with a scoped token, beside the stock endpoint."""

from __future__ import annotations

import sys
from dataclasses import replace

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.auth.scopes import ALL_SCOPES

from ..bench import Bench, Handle, prints
from ..contender_table import of_ours
from .tokens import WIDE_LIMITS, WIDE_OPTIONS

TABLE = "warm `print(1)` through a kernel's WebSocket (aiohttp, binary sub-protocol)"
STOCK = replace(of_ours("kernel WebSocket", "plain", *WIDE_OPTIONS), label="stock endpoint: the server's own token")
SCOPED = replace(STOCK, label="exec/jupyter: scoped token")
AT_ONCE = ", acknowledged at once"


def measure(bench: Bench) -> None:
    """Measure both endpoints of one server."""
    assert STOCK.place is not None
    bench.results.notes[TABLE] = (
        "the stock endpoint leaves TCP_NODELAY off, so it waits for acknowledgements that TCP delays by 40 ms; "
        f"clients{AT_ONCE} send them without delay"
    )
    with bench.servers([STOCK]) as servers:
        server = servers[STOCK.place]
        with ExecClient(server.url, server.token) as owner:
            issued = owner.tokens.create("benchmark", sorted(ALL_SCOPES), policy="wide", limits=WIDE_LIMITS)
        handles = []
        for contender, options in ((STOCK, {}), (SCOPED, {"token": issued.text, "prefix": "/exec/jupyter"})):
            for suffix in ("", *([AT_ONCE] if sys.platform == "linux" else [])):
                handle = Handle(bench, replace(contender, label=f"{contender.label}{suffix}"), servers)
                handle.make(**options, acknowledges_at_once=bool(suffix))
                handles.append(handle)
        samples = bench.interleave(
            handles, lambda handle: handle.timed("run", prints("1"), "print(1)"), bench.times(7.5), warm_up=20
        )
        bench.results.add(TABLE, "ms", samples)
        for handle in handles:
            handle.close()
