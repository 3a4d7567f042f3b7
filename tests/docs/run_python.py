"""Run a page's program from standard input; it may ``await`` outside a function, as pages do."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
from typing import Any

_NAME = "<page>"


def main() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    source = sys.stdin.read()
    # `inspect.getsource` reads functions of a page from here, as it would read them from a file.
    linecache.cache[_NAME] = (len(source), None, source.splitlines(True), _NAME)
    code = compile(source, _NAME, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)  # what a page shows is what is tested
    if inspect.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    main()
