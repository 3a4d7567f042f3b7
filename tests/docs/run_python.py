"""Run a page's program from standard input; it may ``await`` outside a function, as pages do."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from typing import Any


def main() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    code = compile(sys.stdin.read(), "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)  # what a page shows is what is tested
    if inspect.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    main()
