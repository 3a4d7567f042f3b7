"""Blocking and asynchronous clients look like their own kind only, to code that takes either."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from jupyter_core.utils import ensure_async

from jupyter_exec_ext import AsyncExecClient, ExecClient
from jupyter_exec_ext.client.aio.session import AsyncExecSession
from jupyter_exec_ext.client.sync.session import ExecSession

URL = "http://127.0.0.1:9/"


async def test_blocking_client_is_no_awaitable_for_code_that_takes_either_kind() -> None:
    with ExecClient(URL) as client:
        assert not inspect.isawaitable(client)
        assert await ensure_async(client) is client


def test_blocking_classes_are_blocking_contexts_only() -> None:
    for kind in (ExecClient, ExecSession):
        assert issubclass(kind, AbstractContextManager)
        assert not issubclass(kind, AbstractAsyncContextManager) and not issubclass(kind, Awaitable)


def test_asynchronous_classes_are_asynchronous_contexts_only() -> None:
    for kind in (AsyncExecClient, AsyncExecSession):
        assert issubclass(kind, AbstractAsyncContextManager)
        assert not issubclass(kind, AbstractContextManager)


async def test_session_that_is_being_opened_is_no_blocking_context() -> None:
    async with AsyncExecClient(URL) as client:
        opening = client.session()
        assert not isinstance(opening, AbstractContextManager)
        opening.close()
