"""Interfaces of the store that decide about access: scoped tokens, grants of kernels, and secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from ...models import KernelGrant, Secret, StoredToken, Token


class TokenStore(Protocol):
    """Keeps scoped tokens; of their secrets, only hashes."""

    def find(self, token_id: str, secret_hash: bytes) -> StoredToken | None:
        """Return the token with this id, ended or not, if the secret is right; at once, from the event loop.

        Raises
        ------
        StoreUnavailable
        """

    def ended(self, token_ids: Collection[str]) -> Mapping[str, Token | None]:
        """Return the ended ones of these tokens; at once, from the event loop.

        None stands for a token that is not known any more, such as after its database was damaged and replaced.

        Raises
        ------
        StoreUnavailable
        """

    async def note_expired(self, token_id: str) -> bool:
        """Record for good that a token was seen expired; return whether it was not recorded before."""

    async def note_use(self, token_id: str) -> None:
        """Record that a token was used now."""

    async def add(self, stored: StoredToken, secret_hash: bytes, max_tokens: int) -> None:
        """Insert a token, if there are not `max_tokens` active ones; 0 for no limit.

        Raises
        ------
        TokenRevoked
            If the token above it has ended meanwhile.
        TokenTooBroad
            If the token above it ends earlier.
        TooManyTokens, StorageFull, StoreUnavailable
        """

    async def list(self, root: str | None, *, ended: bool) -> Sequence[Token]:
        """Return tokens, oldest first: all, or those whose principal is `root` or below it."""

    async def get(self, token_id: str) -> StoredToken | None:
        """Return a token, ended or not."""

    async def rotate(
        self,
        token_id: str,
        secret_hash: bytes,
        overlap_seconds: float,
        user: Mapping[str, Any],
        expires_at_seconds: float,
        hub_token: str = "",
    ) -> None:
        """Give a token another secret and end, in the name of `user`; the previous secret is valid for the overlap.

        The tokens below it end with it at the latest.

        Raises
        ------
        TokenTooBroad
            If the token above it ends earlier.
        StorageFull, StoreUnavailable
        """

    async def revoke(self, principal: str) -> Sequence[str]:
        """Revoke a token and all that were created below it; return the ids of those that were not revoked before."""

    def find_of_hub(self, hub_token: str, policy: str) -> StoredToken | None:
        """Return the record of a JupyterHub token itself; at once.

        A record that was revoked here comes first, under whatever policy, and then an active one under this policy.
        """

    def is_in_name_of(self, hub_token: str, token_id: str) -> bool:
        """Return whether a token was made in a Hub token's name, or rotated in it since; at once."""

    def made_until(self, hub_token: str) -> float:
        """Return when the last active token made in a Hub token's name expires, since the epoch; 0 without one."""

    async def extend(self, token_id: str, expires_at_seconds: float) -> None:
        """Move the end of an active token, now or as soon as the storage permits."""

    async def revoke_of_hub(self, hub_token: str) -> Sequence[str]:
        """Revoke a Hub token's records and all tokens made in its name, and detach them; return their ids."""


class GrantStore(Protocol):
    """Keeps the records of kernels that were granted to tokens."""

    async def add(self, grant: KernelGrant) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

    async def save_ended(self, grant: KernelGrant) -> None:
        """Replace the record of a grant that has ended, now or as soon as the storage permits."""

    async def list_ended(self, limit: int) -> Sequence[KernelGrant]:
        """Return the newest grants that have ended, oldest first."""


class SecretStore(Protocol):
    """Keeps secrets, encrypted; every method may raise `Conflict` if the key file cannot be used."""

    async def list(self) -> Sequence[Secret]:
        """Return all secrets without their values, by name."""

    async def put(self, secret: Secret, value: str) -> None:
        """Insert a secret, or replace the one of this name.

        Raises
        ------
        Conflict, StorageFull, StoreUnavailable
        """

    async def delete(self, name: str) -> bool:
        """Delete a secret; return whether there was one."""

    async def values(self, names: Collection[str]) -> dict[str, tuple[Secret, str]]:
        """Return those of these secrets that exist, with their values, by name."""

    async def rotate_key(self) -> int:
        """Encrypt all secrets with a new key, and forget the old ones; return how many secrets there are."""
