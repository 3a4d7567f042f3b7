"""Search in the executions of all servers of a pool: the newest of all, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from ..errors import ExecutionNotFound, InvalidRequest
from .callers import PoolCaller
from .pool_server import Server
from .router import NothingSent
from .server_keeper import Keeper
from .server_lookup import server_in
from .server_tokens import ServerTokens
from .sessions import SessionRequests

_MAX_LIMIT = 200
# On a server with only newer executions, the page that is asked for begins after many others.
_MAX_PAGES = 20


class Searches:
    """Searches on all servers.

    Parameters
    ----------
    keeper, tokens, sessions
        The parts of the pool.
    """

    def __init__(self, keeper: Keeper, tokens: ServerTokens, sessions: SessionRequests) -> None:
        self._keeper = keeper
        self._tokens = tokens
        self._sessions = sessions

    async def search(self, caller: PoolCaller, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of found executions, the newest first.

        Parameters
        ----------
        query : mapping
            ``query``, ``limit`` and ``before``, the execution after which the page begins.

        Raises
        ------
        InvalidRequest
            If the limit is none.
        ExecutionNotFound
            If ``before`` is no execution on a server that answers.
        """
        limit = query.get("limit", "50")
        if not (limit.isdecimal() and 1 <= int(limit) <= _MAX_LIMIT):
            raise InvalidRequest(f"'limit' must be a number from 1 to {_MAX_LIMIT}")
        before_at = await self._created_at(caller, query["before"]) if "before" in query else ""
        text = query.get("query", "")
        pages = await asyncio.gather(
            *(self._page(server, caller, text, int(limit), before_at) for server in self._sessions.answering())
        )
        # Servers of one home directory have records of each other.
        found = {item["execution"]["id"]: item for items, _ in pages for item in items}
        newest = sorted(found.values(), key=_moment, reverse=True)[: int(limit)]
        return {"found": newest, "complete": all(complete for _, complete in pages)}

    async def _created_at(self, caller: PoolCaller, execution_id: str) -> str:
        server = self._keeper.servers.get(server_in(execution_id) or "")
        if server is None or server not in self._sessions.answering():
            raise ExecutionNotFound(f"there is no execution {execution_id!r} on a server that answers")
        return str((await self._tokens.call_as(caller, server, "GET", f"executions/{execution_id}"))["created_at"])

    async def _page(
        self, server: Server, caller: PoolCaller, text: str, limit: int, before_at: str
    ) -> tuple[list[Any], bool]:
        """Return the executions of one server that were created before a moment, and whether none was left out."""
        kept: list[Any] = []
        query: dict[str, Any] = {"query": text, "limit": limit}
        try:
            if not await self._tokens.has_token(server, caller):
                return [], True
            for _ in range(_MAX_PAGES):
                answer = await self._tokens.call_as(caller, server, "GET", f"executions?{urlencode(query)}")
                found = answer["found"]
                kept += [item for item in found if not before_at or _moment(item) < before_at]
                if len(kept) >= limit or len(found) < limit:
                    return kept, bool(answer["complete"])
                query["before"] = found[-1]["execution"]["id"]
        except NothingSent:
            pass
        return kept, False


def _moment(item: Any) -> str:
    return str(item["execution"]["created_at"])
