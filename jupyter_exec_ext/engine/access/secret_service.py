"""Secret service: sets and deletes the secrets that the egress proxy adds to requests, and gives sessions theirs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from ...auth.caller import Caller
from ...auth.policy import Policy
from ...auth.policy_parsing import SECRET_NAME
from ...errors import Conflict, InvalidRequest, PolicyDenied, SecretNotFound
from ...isolation.network.access_decision import NetworkAccess, NetworkSecret, Target, decide
from ...isolation.network.libraries import INSTALL_COMMAND, missing_libraries
from ...isolation.network.rules import RuleError, parse_authority
from ...models import Secret, SecretRequest
from ...protocol.kernel_preparation import is_taken_name
from ...protocol.records_json import utc_timestamp
from ..kernels.secret_placeholders import placeholders
from ..ports import AuditTrail, SecretStore

MAX_HOSTS = 10


def effective_secrets(policies: Iterable[Policy]) -> tuple[str, ...]:
    """Return the names of the secrets that all of these policies have, in the order of the first one."""
    first, *others = [policy.secrets for policy in policies] or [()]
    return tuple(name for name in first if all(name in each for each in others))


class SecretService:
    """Secrets of the server. Their values leave it for the egress proxy only.

    Attributes
    ----------
    on_change : callable
        Called after a secret was set or deleted, here or by another server, with its name.
    """

    def __init__(self, store: SecretStore, audit: AuditTrail) -> None:
        self._store = store
        self._audit = audit
        self._known: dict[str, tuple[Secret, str]] = {}  # with their values
        self._turn = asyncio.Lock()  # an older value must not replace a newer one in `_known`
        self.on_change: Callable[[str], Awaitable[None]] | None = None

    async def list(self) -> Sequence[Secret]:
        """Return all secrets without their values, by name."""
        return await self._store.list()

    async def get(self, name: str) -> Secret:
        """Return a secret without its value; raises `SecretNotFound`."""
        for secret in await self._store.list():
            if secret.name == name:
                return secret
        raise SecretNotFound(f"there is no secret {name}; 'jupyter exec secret list' shows those that there are")

    async def put(self, caller: Caller, name: str, request: SecretRequest) -> Secret:
        """Set a secret; running sessions that use it get the new value, host and header from now on.

        Raises
        ------
        InvalidRequest
            If the name, the hosts, the header or the value cannot be used, or a new secret has no hosts or header.
        Conflict
            If there are too many secrets, the key file cannot be used, or a library is missing.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        if not SECRET_NAME.fullmatch(name) or is_taken_name(name):
            raise InvalidRequest(
                f"{name[:64]!r} cannot be the name of a secret: take capital letters, digits and '_', such as "
                "'API_TOKEN', and no variable that programs or Jupyter use already"
            )
        if missing := missing_libraries():
            raise Conflict(f"secrets need {' and '.join(missing)}; install them with {INSTALL_COMMAND}")
        async with self._turn:
            existing = next((secret for secret in await self._store.list() if secret.name == name), None)
            now = utc_timestamp(time.time())
            hosts = existing.hosts if existing and request.hosts is None else request.hosts or ()
            secret = Secret(
                name,
                list(dict.fromkeys(hosts)),  # as the store returns it, for the comparison in `refresh`
                existing.header if existing and request.header is None else request.header or "",
                existing.created_at if existing else now,
                now,
            )
            _check(secret, request.value)
            await self._store.put(secret, request.value)
            self._known[name] = secret, request.value
        action, data = "changed" if existing else "set", {"hosts": [*secret.hosts], "header": secret.header}
        self._audit.record("secret", action, caller.principal, name, **data, by=caller.display_name)
        await self._report_change(name)
        return secret

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a secret; running sessions that use it have it no more.

        Raises
        ------
        SecretNotFound
            If there is none.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        async with self._turn:
            if not await self._store.delete(name):
                raise SecretNotFound(f"there is no secret {name[:64]}")
            self._known.pop(name, None)
        self._audit.record("secret", "deleted", caller.principal, name, by=caller.display_name)
        await self._report_change(name)

    async def rotate_key(self, caller: Caller) -> int:
        """Encrypt all secrets with a new key; return how many there are.

        Raises
        ------
        Conflict
            If the key file cannot be used, or does not decrypt a secret, or a library is missing.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        if missing := missing_libraries():
            raise Conflict(f"secrets need {' and '.join(missing)}; install them with {INSTALL_COMMAND}")
        count = await self._store.rotate_key()
        self._audit.record("secret", "key_rotated", caller.principal, "", by=caller.display_name)
        return count

    # --- for sessions ---

    async def load(self, policies: Sequence[Policy], access: NetworkAccess) -> tuple[str, ...]:
        """Read the secrets of a session to come, and return their names.

        Raises
        ------
        PolicyDenied
            If a secret does not exist, no rule allows one of its hosts, or another one has the same header there.
        Conflict
            If the key file cannot be used.
        """
        names = effective_secrets(policies)
        if not names:
            return ()
        found = await self.refresh(names)
        owners: dict[tuple[str, str], str] = {}
        for name in names:
            if name not in found:
                command = f"jupyter exec secret set {name} --host HOST --header 'Authorization: Bearer {{}}'"
                _deny(policies, name, f"it does not exist; the server's owner can run: {command}")
            secret = found[name][0]
            if not any(decide(access, Target(*parse_authority(host, 443))).is_allowed for host in secret.hosts):
                remedy = "add it to 'network', or leave the secret out"
                _deny(policies, name, f"no network rule allows {secret.hosts[0]}; {remedy}")
            header = secret.header.partition(":")[0].lower()
            for host in secret.hosts:
                if owners.setdefault((host, header), name) != name:
                    _deny(policies, name, f"{owners[host, header]} has the same header for {host}; leave one out")
        return names

    async def refresh(self, names: Collection[str]) -> Mapping[str, tuple[Secret, str]]:
        """Read secrets anew and return those that exist; another server with the same store may have changed them.

        Raises
        ------
        Conflict
            If the key file cannot be used, or does not decrypt one of them.
        """
        async with self._turn:
            found = await self._store.values(names)
            changed = [name for name in names if self._known.get(name) != found.get(name)]
            for name in changed:
                self._known.pop(name, None)
            self._known.update(found)
        for name in changed:
            await self._report_change(name)
        return found

    def of_session(self, session_id: str, names: Iterable[str]) -> tuple[NetworkSecret, ...]:
        """Return the secrets of a session with their present values; those that were deleted are left out."""
        texts = placeholders(session_id, names)
        return tuple(_network_secret(*self._known[name], text) for name, text in texts.items() if name in self._known)

    async def _report_change(self, name: str) -> None:
        if self.on_change is not None:
            await self.on_change(name)


def _network_secret(secret: Secret, value: str, placeholder: str) -> NetworkSecret:
    header, _, template = secret.header.partition(":")
    return NetworkSecret(secret.name, placeholder, tuple(secret.hosts), header, template.strip(), value)


def _check(secret: Secret, value: str) -> None:
    if not secret.hosts or not secret.header:
        raise InvalidRequest(
            f"the secret {secret.name} needs 'hosts' and a 'header', such as 'Authorization: Bearer {{}}'"
        )
    if len(secret.hosts) > MAX_HOSTS:
        raise InvalidRequest(f"'hosts' may have at most {MAX_HOSTS} hosts")
    if value != value.strip():
        raise InvalidRequest(f"the value of {secret.name} has spaces around it; leave them out")
    try:
        _network_secret(secret, value, *placeholders("", [secret.name]).values())
    except RuleError as error:
        raise InvalidRequest(str(error)) from None


def _deny(policies: Sequence[Policy], name: str, reason: str) -> NoReturn:
    policy = policies[0]
    raise PolicyDenied(
        f"the policy {policy.name!r} uses the secret {name}: {reason} (secrets)",
        limit={"policy": policy.name, "name": "secrets", "value": [*policy.secrets]},
    )
