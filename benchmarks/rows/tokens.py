"""Cost of a scoped token: the warm round trip of the server's owner and of a token's bearer."""

from __future__ import annotations

from dataclasses import replace

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.auth.scopes import ALL_SCOPES

from ..bench import Bench, Handle, prints
from ..contender_table import CLIENT, of_ours

TABLE = "warm `print(1)` with a scoped token"
# Every limit is looked at, none is reached.
WIDE_LIMITS = {
    "max_sessions": 5,
    "max_open_executions": 50,
    "max_executions_per_minute": 10**6,
    "max_code_bytes": 10**5,
}
WIDE_OPTIONS = ("--ExecEngine.allow_unprotected_tokens=True", "--ExecEngine.policies={'wide': {'base': 'trusted'}}")
OWNER = replace(of_ours(CLIENT, "plain", *WIDE_OPTIONS), label=f"{CLIENT}: owner")
BEARER = replace(OWNER, label=f"{CLIENT}: scoped token")


def measure(bench: Bench) -> None:
    """Measure both on one server."""
    assert OWNER.place is not None
    with bench.servers([OWNER]) as servers:
        server = servers[OWNER.place]
        with ExecClient(server.url, server.token) as owner:
            issued = owner.tokens.create("benchmark", sorted(ALL_SCOPES), policy="wide", limits=WIDE_LIMITS)
        handles = [Handle(bench, contender, servers) for contender in (OWNER, BEARER)]
        handles[0].make()
        handles[1].make(token=issued.text)
        samples = bench.interleave(
            handles, lambda handle: handle.timed("run", prints("1"), "print(1)"), bench.times(7.5), warm_up=20
        )
        bench.results.add(TABLE, "ms", samples)
        for handle in handles:
            handle.close()
