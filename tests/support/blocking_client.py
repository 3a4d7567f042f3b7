"""The asynchronous client behind the synchronous one's calls, so that one test body runs through both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="client loop")
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Blocking:
    """Calls an asynchronous object's methods and waits for them."""

    def __init__(self, target: Any, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._target)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if _is_async(value):
            return Blocking(value, self._loop)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            if inspect.isawaitable(result):
                result = self._loop.run(_awaited(result))
            if isinstance(result, AsyncIterator):
                return self._iterate(result)
            if isinstance(result, list) and any(map(_is_async, result)):
                return [Blocking(item, self._loop) for item in result]
            return Blocking(result, self._loop) if _is_async(result) else result

        return call

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run(_awaited(anext(items)))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(items.aclose())  # type: ignore[attr-defined]  # ours are generators


def _is_async(value: Any) -> bool:
    return type(value).__name__.startswith("Async")


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
