"""Awaitable context manager: ``await client.session()`` and ``async with client.session() as session``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class AwaitableContext(Coroutine[Any, Any, T], Generic[T]):
    """Awaitable context manager around a coroutine that returns a context manager.

    It is a coroutine, so that `asyncio.create_task` takes it, too.

    Parameters
    ----------
    work : coroutine
        The coroutine.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Continue the work."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error in the work."""
        return self._work.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._work.close()

    async def __aenter__(self) -> T:
        self._opened = await self._work
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._opened is not None
        return await self._opened.__aexit__(kind, error, traceback)


def awaitable_context(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, AwaitableContext[T]]:
    """Decorate a coroutine function, so that its calls can be entered as well as awaited."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> AwaitableContext[T]:
        return AwaitableContext(function(*args, **kwargs))

    return call
