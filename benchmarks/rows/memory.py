"""Memory of one more idle session that has printed once: server and kernels together, in shares (PSS)."""

from __future__ import annotations

from dataclasses import replace

from ..bench import Bench, Handle
from ..contender_table import ASYNC_CLIENT, WEBSOCKET, of_ours
from ..processes import pss_bytes, settle

TABLE = "memory of a further idle session (PSS)"
LIBRARIES_TABLE = "memory of a further idle session with numpy and pandas imported (PSS)"
_SESSIONS = 16
IMPORT = "import numpy, pandas\nprint(1)"
PLAIN, FORK, SCIENCE = (
    replace(of_ours(ASYNC_CLIENT, kernels), kind="load") for kernels in ("plain", "fork", "fork with libraries")
)
GATEWAY = replace(WEBSOCKET, kind="load")


def measure(bench: Bench) -> None:
    """Measure kernels with nothing, and with libraries; one after the other, since memory has no slow moments."""
    number = bench.scaled(_SESSIONS, 2)
    for table, code, contenders in (
        (TABLE, "print(1)", (PLAIN, FORK, GATEWAY)),
        (LIBRARIES_TABLE, IMPORT, (PLAIN, SCIENCE, GATEWAY)),
    ):
        samples = {}
        for contender in bench.available(contenders):
            assert contender.place is not None
            with bench.servers([contender]) as servers:
                pid = servers[contender.place].process.pid
                loads = [Handle(bench, contender, servers, key) for key in ("first", "others")]
                loads[0].make(sessions=1)
                loads[0].call("spread", code, 1, 2, "1")
                settle()
                before = pss_bytes(pid)
                loads[1].make(sessions=number)
                loads[1].call("spread", code, number, 2, "1")
                settle()
                samples[contender.label] = [(pss_bytes(pid) - before) / number / 1e6]
                for load in loads:
                    load.close()
        bench.results.add(table, "MB", samples)
