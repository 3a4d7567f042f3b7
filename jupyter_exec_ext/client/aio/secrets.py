"""Secrets of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from collections.abc import Sequence

from ...models import RecordList, Secret
from ..api.retries import RetryPolicy
from ..api.secret_operations import delete_secret, list_secrets, put_secret, rotate_secret_key
from .driver import AioDriver


class AsyncExecSecrets:
    """Secrets that the egress proxy adds to requests of sessions, as `AsyncExecClient.secrets`; for the owner."""

    def __init__(self, driver: AioDriver, retry: RetryPolicy) -> None:
        self._driver = driver
        self._retry = retry

    async def list(self) -> RecordList[Secret]:
        """Return the secrets by name, without their values."""
        return await self._driver.perform(list_secrets(self._retry))

    async def set(
        self, name: str, value: str, *, hosts: Sequence[str] | None = None, header: str | None = None
    ) -> Secret:
        """Set a secret, or give an existing one a new value; running sessions use it from now on.

        Parameters
        ----------
        name : str
            Its name in capital letters. Sessions have a placeholder in the environment variable of this name.
        value : str
            The secret itself. No answer has it.
        hosts : sequence of str, optional
            Hosts that get it over TLS, with ``:port`` unless it is 443; by default those that the secret has.
        header : str, optional
            The header that carries it, such as ``Authorization: Bearer {}``; by default the one that the secret has.

        Raises
        ------
        InvalidRequest
            If an argument is invalid, or a new secret has no hosts or no header.
        Conflict
            If there are too many secrets, or the server cannot encrypt them.
        OwnerOnly
            If the token is a scoped one.
        """
        return await self._driver.perform(put_secret(name, value, hosts, header, self._retry))

    async def delete(self, name: str) -> None:
        """Delete a secret, also for running sessions; raise `SecretNotFound` if there is none."""
        await self._driver.perform(delete_secret(name, self._retry))

    async def rotate_key(self) -> int:
        """Encrypt all secrets with a new key, and forget the old one; return how many secrets there are."""
        return await self._driver.perform(rotate_secret_key(self._retry))
