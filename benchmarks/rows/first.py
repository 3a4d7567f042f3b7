"""Time to the first result of a fresh session, on servers that run already.

A contender that starts its own kernel has no server. `ExecClient` is one for all sessions, as an agent has it; it takes
a session and runs code in it, or does both in one request (`ExecClient.run`). An executor is made anew each time, and
its connection with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..bench import Bench, Check, Handle, prints
from ..contender_table import (
    AUTOGEN,
    CLIENT,
    CLIENT_RUN,
    DIRECT,
    DIRECT_ASYNC,
    EXECUTOR,
    MCP_ENDPOINT,
    PEERS,
    SMOLAGENTS,
    WEBSOCKET,
    Contender,
)
from ..contender_table import of_ours as ours

TABLE = "fresh session to first `print(1)`"
LIBRARIES_TABLE = "fresh session to first `print(1)` after `import numpy, pandas, matplotlib.pyplot`"
CHART_TABLE = "fresh session to first chart with numpy, pandas and matplotlib"
FORK, SCIENCE = "fork", "fork with libraries"

CONTESTANTS = (
    ours(CLIENT),
    ours(CLIENT, pool=True),
    ours(CLIENT, FORK),
    ours(CLIENT, FORK, pool=True),
    ours(CLIENT_RUN, FORK),
    ours(CLIENT_RUN, FORK, pool=True),
    ours(CLIENT, "sandbox"),
    ours(CLIENT, "sandbox", pool=True),
    ours(CLIENT_RUN, "sandbox", pool=True),
    ours(MCP_ENDPOINT),
    ours(MCP_ENDPOINT, FORK, pool=True),
    ours(EXECUTOR),
    ours(EXECUTOR, pool=True),
    ours(EXECUTOR, FORK),
    ours(EXECUTOR, FORK, pool=True),
    DIRECT,
    DIRECT_ASYNC,
    *PEERS,
    SMOLAGENTS,
)
WITH_LIBRARIES = (
    ours(CLIENT),
    ours(CLIENT, SCIENCE),
    ours(CLIENT, SCIENCE, pool=True),
    ours(CLIENT_RUN, SCIENCE, pool=True),
    DIRECT,
    AUTOGEN,
    WEBSOCKET,
)
LIBRARIES_CODE = "import numpy, pandas, matplotlib.pyplot\nprint(1)"
CHART_CODE = """
import numpy, pandas, matplotlib.pyplot
figure, axes = matplotlib.pyplot.subplots()
axes.plot(pandas.Series(numpy.arange(10)).cumsum())
matplotlib.pyplot.close(figure)
print(int(numpy.sum(pandas.Series([1, 2, 3]))))
"""


def measure(bench: Bench) -> None:
    """Measure with `print(1)`."""
    _measure(bench, TABLE, CONTESTANTS, "print(1)", prints("1"), bench.times(1))


def measure_with_libraries(bench: Bench) -> None:
    """Measure with a first cell that imports what data is looked at with, and with one that draws, too."""
    _measure(bench, LIBRARIES_TABLE, WITH_LIBRARIES, LIBRARIES_CODE, prints("1"), bench.times(0.5))
    _measure(bench, CHART_TABLE, WITH_LIBRARIES, CHART_CODE, prints("6"), bench.times(0.5))


def _measure(bench: Bench, table: str, contenders: Sequence[Contender], code: str, check: Check, rounds: int) -> None:
    chosen = bench.available(contenders)
    with bench.servers(chosen) as servers:
        handles = [Handle(bench, one, servers) for one in chosen]
        samples = bench.interleave(handles, lambda handle: handle.first(code, check), rounds, warm_up=2, rest=True)
    bench.results.add(table, "ms", samples)
