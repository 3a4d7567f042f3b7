"""Line protocol of `benchmarks.executors`, the side of frameworks' executors. It needs nothing but Python.

A line in is ``[VERB, NAME, CODE]`` and a line out the answer, both JSON:

- ``first``: makes the executor, runs the code in it, and answers ``[seconds, text]``; the executor is kept
- ``run``: runs the code in the executor that is kept, and answers the same
- ``close``: ends that executor and answers null
- ``versions``: answers what of the packages in question is installed
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol


class Executor(Protocol):
    """What a contender is wrapped in: code in, text out."""

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""

    def close(self) -> None:
        """End the executor and all that it started."""


def serve(contenders: Mapping[str, Callable[[], Executor]]) -> None:
    """Answer until there are no more lines.

    Parameters
    ----------
    contenders : mapping
        A name, and what makes the executor. Making it is part of what is measured.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that what anybody prints is no answer
    kept: dict[str, Executor] = {}
    for line in sys.stdin:
        verb, name, code = json.loads(line)
        answer: object = None
        if verb == "first":
            began = time.perf_counter()
            kept[name] = contenders[name]()
            text = kept[name].run(code)
            answer = [time.perf_counter() - began, text]
        elif verb == "run":
            began = time.perf_counter()
            text = kept[name].run(code)
            answer = [time.perf_counter() - began, text]
        elif verb == "close":
            kept.pop(name).close()
        elif verb == "versions":
            answer = {package: found for package in code.split() if (found := installed(package))}
        print(json.dumps(answer), file=answers, flush=True)


def installed(package: str) -> str | None:
    """Return which version of a package is installed here, if any is."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
