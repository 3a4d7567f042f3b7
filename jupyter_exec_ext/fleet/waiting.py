"""Queue of requests that wait for a place: principals take turns, each principal's requests in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from .pool_server import Reservation

# A principal alone must not fill the queue.
_MAX_WAITING = 10_000
_MAX_WAITING_PER_PRINCIPAL = 1_000


@dataclass(eq=False, frozen=True, slots=True)
class WaitingRequest:
    """A request that waits, and where its place must not be."""

    excluded: Collection[str]
    place: asyncio.Future[Reservation]


class WaitingQueue:
    """Requests that wait for a place."""

    def __init__(self) -> None:
        self._by_principal: dict[str, deque[WaitingRequest]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_principal.values()))

    async def wait(self, seconds: float, excluded: Collection[str], principal: str) -> Reservation | None:
        """Wait for a place; return None if there is none in time, or too many requests wait already."""
        own = len(self._by_principal.get(principal, ()))
        if own >= _MAX_WAITING_PER_PRINCIPAL or len(self) >= _MAX_WAITING:
            return None
        request = WaitingRequest(excluded, asyncio.get_running_loop().create_future())
        self._by_principal.setdefault(principal, deque()).append(request)
        try:
            await asyncio.wait([request.place], timeout=seconds)
        except asyncio.CancelledError:
            if request.place.done():
                request.place.result().done(is_kept=False)
            raise
        finally:
            if not request.place.done():
                self._remove(principal, request)
        return request.place.result() if request.place.done() else None

    def serve(self, find_place: Callable[[Collection[str], str], Reservation | None]) -> None:
        """Give places to requests while there are any. A principal that gets one is last in the next round."""
        is_served = True
        while is_served:
            is_served = False
            for principal, requests in [*self._by_principal.items()]:
                request = requests[0]
                reservation = find_place(request.excluded, principal)
                if reservation is not None:
                    is_served = True
                    request.place.set_result(reservation)
                    self._by_principal[principal] = self._by_principal.pop(principal)
                    self._remove(principal, request)

    def _remove(self, principal: str, request: WaitingRequest) -> None:
        requests = self._by_principal[principal]
        requests.remove(request)
        if not requests:
            del self._by_principal[principal]
