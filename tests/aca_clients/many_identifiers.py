"""Runs code of many identifiers at once through another project's client, which is the argument.

It runs in the environment of the client, which has little else. Standard input has the endpoint, a token and pairs of
identifier and code as JSON; standard output gets what each has printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

THREADS = 20
Run = Callable[[str, str], str]


def autogen(endpoint: str, token: str) -> Run:
    """Return what runs code by autogen-ext's executor."""
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock
    from autogen_ext.code_executors.azure import ACADynamicSessionsCodeExecutor

    expires = time.time() + 3600
    credential = SimpleNamespace(get_token=lambda *_, **__: SimpleNamespace(token=token, expires_on=expires))
    work_dir = tempfile.mkdtemp()

    def run(identifier: str, code: str) -> str:
        executor = ACADynamicSessionsCodeExecutor(
            pool_management_endpoint=endpoint, credential=credential, session_id=identifier, work_dir=work_dir
        )
        result = asyncio.run(executor.execute_code_blocks([CodeBlock(code, "python")], CancellationToken()))
        assert result.exit_code == 0, result.output
        return str(result.output)

    return run


def langchain(endpoint: str, token: str) -> Run:
    """Return what runs code by LangChain's tool."""
    from langchain_azure_dynamic_sessions import SessionsPythonREPLTool

    def run(identifier: str, code: str) -> str:
        tool = SessionsPythonREPLTool(
            pool_management_endpoint=endpoint, session_id=identifier, access_token_provider=lambda: token
        )
        return str(json.loads(tool.invoke(code))["stdout"])

    return run


def main() -> None:
    """Run all."""
    given = json.load(sys.stdin)
    run = {"autogen": autogen, "langchain": langchain}[sys.argv[1]](given["endpoint"], given["token"])
    with ThreadPoolExecutor(THREADS) as threads:
        json.dump(list(threads.map(lambda pair: run(*pair), given["runs"])), sys.stdout)


if __name__ == "__main__":
    main()
