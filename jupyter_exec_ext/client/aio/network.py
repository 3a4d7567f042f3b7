"""Network of a session of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from ...models import Session, SessionNetwork
from ..api.network_operations import allow_network, read_network
from ..api.operations import ExecApi
from .ports import AsyncExecPorts


class AsyncExecNetwork(AsyncExecPorts):
    """Methods of a session for its network and its ports."""

    _api: ExecApi
    record: Session

    async def network(self) -> SessionNetwork:
        """Return what the session's code may reach, and what it has asked for, allowed or refused.

        Returns
        -------
        SessionNetwork
            With the newest 200 requests.
        """
        return await self._driver.perform(read_network(self.record.id, self._api.retry))

    async def allow_network(self, rule: str) -> SessionNetwork:
        """Allow the session's code one thing more, until the session ends. Only the server's owner can do this.

        Parameters
        ----------
        rule : str
            A rule as in a policy, such as ``example.com`` or ``GET https://api.example.com/v1/*``.

        Raises
        ------
        Forbidden
            If the caller is not the owner.
        InvalidRequest
            If the rule is not valid.
        Conflict
            If the session has no network rules at all, or too many.
        """
        return await self._driver.perform(allow_network(self.record.id, rule, self._api.retry))
