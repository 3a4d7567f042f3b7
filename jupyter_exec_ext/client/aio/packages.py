"""Packages of a session of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from ...models import Execution
from ..api.execution_operations import new_key
from ..api.package_operations import packages_of, packages_request
from .network import AsyncExecNetwork


class AsyncExecPackages(AsyncExecNetwork):
    """Methods of a session for its packages, its network and its ports."""

    async def install(self, *packages: str) -> Execution:
        """Install packages for this session alone; they stay through restarts and end with the session.

        Parameters
        ----------
        *packages : str
            Requirements, such as ``pandas==2.2``.

        Returns
        -------
        Execution
            The execution that has installed them, with the installer's messages.

        Raises
        ------
        PackagesNotFound
            If a requirement is not valid, or there are no wheels for it.
        PolicyDenied, Conflict
            If the session may not install packages, or cannot.
        QuotaExceeded
            If the session has no room for them.
        CodeError
            If the installer fails.
        """
        operation = self._api.run(packages_of(self.record.id), packages_request(packages), new_key())
        return (await self._driver.perform(operation)).raise_for_error()
