"""Queue of requests that wait for a place: users take turns, each account's requests in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from .pool_server import Reservation

# An account alone must not fill the queue.
_MAX_WAITING = 10_000
_MAX_WAITING_PER_ACCOUNT = 1_000
Request = tuple[Collection[str], "asyncio.Future[Reservation]"]


class PlaceQueue:
    """Requests that wait for a place; each has names of servers that it must not be on."""

    def __init__(self) -> None:
        self._by_account: dict[str, deque[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_account.values()))

    async def wait(self, seconds: float, excluded: Collection[str], account: str) -> Reservation | None:
        """Wait for a place; return None if there is none in time, or too many requests wait already."""
        own = self._by_account.get(account, ())
        if len(own) >= _MAX_WAITING_PER_ACCOUNT or len(self) >= _MAX_WAITING:
            return None
        place: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        self._by_account.setdefault(account, deque()).append((excluded, place))
        try:
            await asyncio.wait([place], timeout=seconds)
        except asyncio.CancelledError:
            if place.done():
                place.result().done(is_kept=False)
            raise
        finally:
            if not place.done():
                self._remove(account, (excluded, place))
        return place.result() if place.done() else None

    def serve(self, find_place: Callable[[Collection[str], str], Reservation | None]) -> None:
        """Give places to requests while there are any. An account that gets one is last in the next round."""
        is_served = True
        while is_served:
            is_served = False
            for account, requests in [*self._by_account.items()]:
                excluded, place = requests[0]
                if (reservation := find_place(excluded, account)) is not None:
                    is_served = True
                    place.set_result(reservation)
                    self._by_account[account] = self._by_account.pop(account)
                    self._remove(account, (excluded, place))

    def _remove(self, account: str, request: Request) -> None:
        requests = self._by_account[account]
        requests.remove(request)
        if not requests:
            del self._by_account[account]
