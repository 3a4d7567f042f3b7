"""Line protocol of contenders, their side. It runs in environments of peers, so it needs nothing but Python.

A line in is JSON, and so is the line out that answers it:

- ``["make", key, kind, {options}]`` makes a contender of a kind and keeps it under a key
- ``["first", key, kind, {options}, code]`` does the same and runs code in it, and the time is of both
- ``["call", key, method, [arguments]]`` calls a method of what is kept
- ``["close", key]`` ends what is kept
- ``["versions", [packages]]`` answers what of these is installed

An answer is ``{"seconds", "value"}``, where a long text is its length and both ends, or ``{"error"}``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_KEPT_CHARACTERS = 200


class _Worker:
    """Holds the contenders, and an event loop for those that are asynchronous."""

    def __init__(self, kinds: Mapping[str, Callable[..., Any]]) -> None:
        self._kinds = kinds
        self._kept: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()

    def answer(self, verb: str, *arguments: Any) -> dict[str, Any]:
        """Do as a line says, and say how long it took."""
        value: Any = None
        began = time.perf_counter()
        if verb == "make":
            self._make(*arguments)
        elif verb == "first":
            key, kind, options, code = arguments
            made = self._make(key, kind, options)
            try:
                value = self._finish(made.run(code))
            except BaseException:
                self._close(key)
                raise
        elif verb == "call":
            key, method, given = arguments
            value = self._finish(getattr(self._kept[key], method)(*given))
        elif verb == "close":
            self._close(arguments[0])
        elif verb == "versions":
            value = {package: found for package in arguments[0] if (found := _installed(package))}
        else:
            raise ValueError(f"no verb is called {verb!r}")
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "value": shortened(value) if isinstance(value, str) else value}

    def _make(self, key: str, kind: str, options: dict[str, Any]) -> Any:
        made = self._kept[key] = self._finish(self._kinds[kind](**options))
        return made

    def _close(self, key: str) -> None:
        self._finish(self._kept.pop(key).close())

    def _finish(self, result: Any) -> Any:
        return self._loop.run_until_complete(result) if inspect.isawaitable(result) else result

    def close(self) -> None:
        """End what is still kept."""
        for contender in self._kept.values():
            self._finish(contender.close())
        self._loop.close()


def shortened(text: str) -> dict[str, Any]:
    """Return what a row needs in order to check a text, which may be a hundred megabytes."""
    return {"length": len(text), "head": text[:_KEPT_CHARACTERS], "tail": text[-_KEPT_CHARACTERS:]}


def serve(kinds: Mapping[str, Callable[..., Any]]) -> None:
    """Answer until there are no more lines.

    Parameters
    ----------
    kinds : mapping
        A name, and what makes a contender from options. A contender has ``run(code)``, which returns the text of the
        result, ``close()``, and whatever else its rows call; all of them, and what makes it, may be asynchronous.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that what anybody prints is no answer
    worker = _Worker(kinds)
    try:
        for line in sys.stdin:
            try:
                answer = worker.answer(*json.loads(line))
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        worker.close()


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
