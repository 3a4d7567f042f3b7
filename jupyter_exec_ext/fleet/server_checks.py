"""Check of a pool's servers before it serves: their policies, and the isolation that shared servers need."""

from __future__ import annotations

import asyncio

from ..errors import ExecError, PoliciesInvalid
from .pool_server import AWAY
from .pool_settings import ExecPool
from .router import NothingSent
from .server_keeper import Keeper
from .server_requests import ServerRequests

_AGAIN_SECONDS = 0.2


async def check_servers(keeper: Keeper, requests: ServerRequests, settings: ExecPool) -> None:
    """Wait for the first server, and check how it is configured; all servers of a pool are configured alike.

    Raises
    ------
    PoliciesInvalid
        If it lacks a policy of the pool, or principals would share servers without isolation between their kernels.
    """
    while settings.tenancy == "isolated":  # a principal's own server is there only when it is needed
        for server in [s for s in keeper.servers.values() if s.load is not None and s.state not in AWAY]:
            try:
                info = await requests.call(server, "GET", "")
                policies = (await requests.call(server, "GET", "policies"))["policies"]
            except NothingSent:
                continue
            except ExecError as error:
                if error.status != 503:  # such as while the server cannot ask the Hub about the pool's token
                    raise
                continue
            require_policies(settings, {policy["name"]: policy["isolation"] for policy in policies}, info)
            return
        await asyncio.sleep(_AGAIN_SECONDS)


def require_policies(settings: ExecPool, isolation: dict[str, str], info: dict[str, object]) -> None:
    """Check the isolation of the servers' policies, by their names; raise as `check_servers`."""
    for policy in settings.policies.values():
        if policy not in isolation:
            raise PoliciesInvalid(
                f"ExecPool.policies names the policy {policy!r}, and the servers have {', '.join(isolation)}; add it "
                "to their ExecEngine.policies"
            )
        if isolation[policy] == "none" and info.get("unprotected_tokens"):
            raise PoliciesInvalid(
                f"users of the pool share servers, and kernels of the policy {policy!r} are not isolated from each "
                "other; set its isolation, or ExecPool.tenancy = 'own' for a server for each user"
            )
