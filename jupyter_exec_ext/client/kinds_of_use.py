"""Mixins of the two kinds of client: refuse the other kind's `with`, `async with` or `await`, with the remedy."""

from __future__ import annotations

from typing import NoReturn


class AsyncOnly:
    """Mixin of what belongs to an asynchronous client: ``with`` raises."""

    def __enter__(self) -> NoReturn:
        raise TypeError("this belongs to an asynchronous client, so 'with' cannot enter it; write 'async with'")

    def __exit__(self, *exc: object) -> None:
        """Do nothing: Python looks for both methods before it calls the first."""


class BlockingOnly:
    """Mixin of what belongs to a blocking client: ``async with`` and ``await`` raise."""

    def __aenter__(self) -> NoReturn:
        raise TypeError("this belongs to a blocking client; write 'with', or use the asynchronous client")

    async def __aexit__(self, *exc: object) -> None:
        """Do nothing: Python looks for both methods before it calls the first."""

    def __await__(self) -> NoReturn:
        raise TypeError("this belongs to a blocking client; leave 'await' out, or use the asynchronous client")
