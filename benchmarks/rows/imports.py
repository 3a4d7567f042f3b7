"""Import times of our client and of its peers, for which an agent's process waits."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from ..bench import Bench
from ..contender_table import AUTOGEN, AUTOGEN_EXT
from ..interleave import interleaved
from ..peers import ROOT, environment

TABLE = "import"
CLIENT, EXECUTOR = "from jupyter_exec_ext import ExecClient", "from jupyter_exec_ext import JupyterCodeExecutor"
AUTOGEN_IMPORT = "from autogen.coding.jupyter import JupyterCodeExecutor"
AUTOGEN_EXT_IMPORT = "from autogen_ext.code_executors.jupyter import JupyterCodeExecutor"
REQUESTS = "import requests"
# A client loads its HTTP library when it is made.
MADE = f"{CLIENT}; ExecClient('http://127.0.0.1:9/')"
OURS = (CLIENT, MADE, "from jupyter_exec_ext import AsyncExecClient", EXECUTOR, REQUESTS, "import aiohttp")
_TIMED = "import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"


def milliseconds(python: Path, statement: str) -> float:
    """Return how long a statement takes in a new process, whose start is not part of it."""
    command = [str(python), "-c", _TIMED.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return float(done.stdout.splitlines()[-1]) * 1e3


def measure(bench: Bench) -> None:
    """Measure."""
    turns = {statement: partial(milliseconds, Path(sys.executable), statement) for statement in OURS}
    for contender, statement in ((AUTOGEN, AUTOGEN_IMPORT), (AUTOGEN_EXT, AUTOGEN_EXT_IMPORT)):
        if bench.available([contender]):
            turns[statement] = partial(milliseconds, environment(contender.worker), statement)
    bench.results.add(TABLE, "ms", interleaved(turns, bench.times(0.5), 1))
