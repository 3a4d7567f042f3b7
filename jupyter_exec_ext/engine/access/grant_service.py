"""Kernel grants: the owner lets one scoped token attach to one running kernel, such as that of a notebook.

A grant is no right of the tokens below its token. It ends with its token, its kernel or its time, when it is revoked,
and with this server. Memory decides which grants are active, so a revocation and an attachment cannot overtake each
other; the store keeps the records.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...auth.caller import Caller, token_principal
from ...errors import Conflict, GrantNotFound, InvalidRequest, KernelNotFound, PolicyDenied, ShuttingDown
from ...models import GrantRequest, KernelGrant
from ...protocol.records_json import utc_timestamp
from ..change_feed import ChangeFeed
from ..concurrency import BackgroundTasks
from ..ports import AuditTrail, GrantStore, KernelHost
from .kernel_access import KernelAccess
from .token_service import TokenService
from .token_watch import TokenWatch, why_ended

_POLL_SECONDS = 1.0  # of kernels that have ended: no code runs in them any more
_MAX_GRANTS = 100
_MAX_LISTED = 1000

OnEnd = Callable[[str], None]


@dataclass(slots=True)
class _ActiveGrant:
    """An active grant, with what its end calls: sessions' callbacks with the reason, and the ends of watches."""

    grant: KernelGrant
    on_end: dict[object, OnEnd] = field(default_factory=dict)
    cleanup: list[Callable[[], object]] = field(default_factory=list)


class GrantService:
    """Grants of this server's kernels to scoped tokens."""

    def __init__(
        self,
        host: KernelHost,
        store: GrantStore,
        access: KernelAccess,
        tokens: TokenService,
        token_watch: TokenWatch,
        audit: AuditTrail,
        feed: ChangeFeed,
        background: BackgroundTasks,
    ) -> None:
        self._host = host
        self._store = store
        self._access = access
        self._tokens = tokens
        self._token_watch = token_watch
        self._audit = audit
        self._feed = feed
        self._background = background
        self._active: dict[str, _ActiveGrant] = {}
        self._creating = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def create(self, caller: Caller, request: GrantRequest) -> KernelGrant:
        """Grant a running kernel to a token.

        Raises
        ------
        TokenNotFound, TokenRevoked, TokenExpired
            If there is no such active token.
        InvalidRequest
            If another token has created it, which could act in its name.
        KernelNotFound, PolicyDenied, IsolationRequired
            If there is no such kernel, or the token's policy does not allow it; see `KernelAccess.grantable`.
        Conflict
            If the token has the kernel already, or too many grants are active.
        StorageFull, StoreUnavailable
            If it cannot be recorded; nothing is granted.
        """
        async with self._creating:  # the checks hold until the grant is active
            bearer = await self._tokens.bearer(caller, request.token_id)
            if bearer.principal != bearer.root:
                raise InvalidRequest(
                    f"the token {request.token_id} was created by another token, which can act in its name; grant the "
                    "kernel to a token of your own"
                )
            spec = self._access.grantable(bearer, request.kernel_id)
            if self.find(bearer, request.kernel_id) is not None:
                raise Conflict("the token has this kernel already; revoke that grant to change it")
            if len(self._active) >= _MAX_GRANTS:
                raise Conflict(f"at most {_MAX_GRANTS} grants can be active; revoke one first")
            now, seconds = time.time(), request.expires_in_seconds
            grant = KernelGrant(
                id=f"grt_{secrets.token_hex(12)}",
                token_id=request.token_id,
                kernel_id=request.kernel_id,
                kernel_name=spec.name,
                name=request.name,
                created_at=utc_timestamp(now),
                created_by=caller.display_name or caller.principal,
                expires_at=None if seconds is None else utc_timestamp(now + seconds),
            )
            await self._store.add(grant)
            self._activate(grant, seconds)
        names = ("token_id", "kernel_id", "kernel_name", "name", "expires_at")
        data = {name: getattr(grant, name) for name in names}
        self._audit.record("grant", "created", caller.principal, grant.id, **data, by=caller.display_name)
        self._feed.note_grant(grant, _principal_of(grant))
        return grant

    def _activate(self, grant: KernelGrant, seconds: float | None) -> None:
        if self._closed:  # the next start ends the record
            raise ShuttingDown("the server is shutting down")
        active = self._active[grant.id] = _ActiveGrant(grant)
        # A token that has ended meanwhile is found at the watch's next poll.
        unwatch = self._token_watch.watch(grant.token_id, lambda token: self._end(grant.id, why_ended(token)))
        active.cleanup.append(unwatch)
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._end, grant.id, "its time is over")
            active.cleanup.append(timer.cancel)
        self._schedule_poll()

    async def list(self, caller: Caller, *, ended: bool = False) -> Sequence[KernelGrant]:
        """Return grants, oldest first: all for the owner; for a token, its own and those of the tokens below it."""
        past = await self._store.list_ended(_MAX_LISTED) if ended else ()
        grants = [*past, *(active.grant for active in self._active.values())]
        return [grant for grant in grants if caller.may_see(_principal_of(grant))]

    def find(self, caller: Caller, kernel_id: str | None) -> KernelGrant | None:
        """Return the active grant of a kernel to the caller's own token; None if there is none."""
        for active in self._active.values():
            if active.grant.token_id == caller.token_id and active.grant.kernel_id == kernel_id:
                return active.grant
        return None

    def watch(self, grant_id: str, on_end: OnEnd) -> Callable[[], None]:
        """Call `on_end` with the reason when a grant ends; return a function that ends the subscription.

        Raises
        ------
        PolicyDenied
            If it has ended.
        """
        active, key = self._require(grant_id), object()
        active.on_end[key] = on_end

        def unwatch() -> None:
            active.on_end.pop(key, None)

        return unwatch

    def require_active(self, grant: KernelGrant | None) -> None:
        """Check that a grant, if there is one, has not ended; raises `PolicyDenied`."""
        if grant is not None:
            self._require(grant.id)

    def _require(self, grant_id: str) -> _ActiveGrant:
        active = self._active.get(grant_id)
        if active is None:
            raise PolicyDenied("the kernel is not shared with this token any more")
        return active

    async def revoke(self, caller: Caller, grant_id: str) -> None:
        """End a grant and the token's sessions on its kernel; the kernel and its user's code go on. Idempotent.

        Raises
        ------
        GrantNotFound
            If there is no such grant.
        """
        if grant_id in self._active:
            by = caller.display_name
            self._end(grant_id, "it was revoked", "revoked", principal=caller.principal, by=by)
        elif grant_id not in {grant.id for grant in await self._store.list_ended(_MAX_LISTED)}:
            raise GrantNotFound(f"no grant {grant_id!r}; list the grants to find its id")

    def _end(self, grant_id: str, reason: str, action: str = "ended", *, principal: str = "", by: str = "") -> None:
        active = self._active.pop(grant_id, None)
        if active is None:
            return
        for cleanup in active.cleanup:
            cleanup()
        for on_end in list(active.on_end.values()):
            on_end(reason)
        grant = replace(active.grant, ended_at=utc_timestamp(time.time()), ended_reason=reason)
        data = {"token_id": grant.token_id, "kernel_id": grant.kernel_id, "reason": reason, "by": by}
        self._audit.record("grant", action, principal, grant.id, **data)
        self._feed.note_grant(grant, _principal_of(grant))
        self._background.start(self._store.save_ended(grant))

    def _schedule_poll(self) -> None:
        if self._timer is None and self._active:
            self._timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._timer = None
        self._schedule_poll()  # first, so that a fault of the host is not the end of the polling
        for active in list(self._active.values()):
            try:
                self._host.running(active.grant.kernel_id)
            except KernelNotFound:
                self._end(active.grant.id, "the kernel was shut down")

    def close(self) -> None:
        """End all grants, since the server stops."""
        self._closed = True
        for grant_id in list(self._active):
            self._end(grant_id, "the server was shut down")
        if self._timer is not None:
            self._timer.cancel()


def _principal_of(grant: KernelGrant) -> str:
    return token_principal((grant.token_id,))  # no token is above it
