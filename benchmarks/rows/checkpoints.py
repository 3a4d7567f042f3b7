"""Checkpoints of a session with 1 GB of data: made, restored, and branched, beside other ways to the same state."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from jupyter_exec_ext.client import ExecClient

from ..bench import Bench, WrongAnswerError
from ..interleave import interleaved
from ..servers import ours, running

TABLE = "state of a session with 1 GB of NumPy and pandas data"
MEMORY_TABLE = "memory that an untouched checkpoint adds"
CHECKPOINT, RESTORE, BRANCH = "checkpoint", "restore", "branch of 8"
PICKLE, AGAIN = "pickle of the variables and reload", "the cells run again"
FORK, SESSION = "os.fork of the same process", "a session of the fork server, to its first result"
_BRANCHES, _KEPT = 8, 5
_CELLS = """
import os, pickle, time
import numpy as np, pandas as pd
arrays = [np.random.default_rng(number).random(10_000_000) for number in range({arrays})]
frame = pd.DataFrame({{name: np.arange({rows}, dtype=float) for name in "abcd"}})
"""
_PICKLE = """
with open("state", "wb") as file: pickle.dump((arrays, frame), file, 5)
with open("state", "rb") as file: loaded = pickle.load(file)
del loaded; os.unlink("state")
"""
_FORK = """
began = time.perf_counter()
pid = os.fork()
if not pid: os._exit(0)
seconds = time.perf_counter() - began
_ = os.waitpid(pid, 0)
print(seconds)
"""


def measure(bench: Bench) -> None:
    """Measure all ways in turns."""
    cells = _CELLS.format(arrays=bench.scaled(10, 1), rows=bench.scaled(6_000_000, 10_000))
    with ExitStack() as stack:
        server = stack.enter_context(running(ours("fork", "--ExecEngine.max_checkpoints=50")))
        client = stack.enter_context(ExecClient(server.url, server.token))
        session = stack.enter_context(client.session())
        session.run(cells, check=True)
        kept = session.checkpoint()

        def checkpoint() -> float:
            made, milliseconds = timed(session.checkpoint)
            session.delete_checkpoint(made)
            return milliseconds

        def restore() -> float:
            _, milliseconds = timed(lambda: session.restore(kept))
            if session.run("len(frame)").text.strip() != str(bench.scaled(6_000_000, 10_000)):
                raise WrongAnswerError("the state is another one after the restore")
            return milliseconds

        def branch() -> float:
            made, milliseconds = timed(lambda: session.branch(_BRANCHES, kept))
            for one in made:
                one.close()
            return milliseconds

        def again() -> float:
            with client.session() as other:
                return timed(lambda: other.run(cells, check=True))[1]

        def fork() -> float:
            return float(session.run(_FORK, check=True).stdout) * 1e3

        def fresh() -> float:
            made, milliseconds = timed(lambda: run_first(client))
            made.close()
            return milliseconds

        ways: dict[str, Callable[[], float]] = {
            CHECKPOINT: checkpoint,
            RESTORE: restore,
            BRANCH: branch,
            PICKLE: lambda: timed(lambda: session.run(_PICKLE, check=True))[1],
            AGAIN: again,
            FORK: fork,
            SESSION: fresh,
        }
        bench.results.add(TABLE, "ms", interleaved(ways, bench.times(1.5), 1))
        session.restore(kept)
        before = session.refresh(memory=True).memory_bytes or 0
        for _ in range(_KEPT):
            session.checkpoint()
        after = session.refresh(memory=True).memory_bytes or 0
        bench.results.add(MEMORY_TABLE, "MB", {CHECKPOINT: [(after - before) / _KEPT / 1e6]})


def run_first(client: ExecClient) -> Any:
    """Return a new session that has run something."""
    session = client.session()
    session.run("1", check=True)
    return session


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work gives, and the milliseconds that it took."""
    began = time.perf_counter()
    done = work()
    return done, (time.perf_counter() - began) * 1e3
