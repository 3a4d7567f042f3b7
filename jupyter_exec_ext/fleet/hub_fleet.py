"""`HubFleet`: the pool's servers as named servers of one user at a JupyterHub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..client.aio.driver import AioDriver
from ..client.api.retries import NO_RETRY
from ..client.server_connection import JupyterConnectionInfo
from ..errors import (
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    NoServerStarted,
    Unavailable,
    UnexpectedAnswer,
)
from ..executors.hub_api import HubServerApi, list_addresses
from ..executors.hub_launch import HubLaunch
from ..executors.remote_launch import Deadline, ProgressReporter, run_until_deadline
from .fleet import FleetServer

# A Hub that does not answer a question within this time counts as away.
_ANSWER_SECONDS = 5.0
# While its proxy is away, the Hub does not answer for 30 seconds.
_ROUTES_SECONDS = 2.0
# The Hub's own start_timeout ends a start earlier. A server of a batch system may wait in a queue.
_START_SECONDS = 3600.0
_STOP_SECONDS = 120.0


class HubFleet:
    """Starts and stops named servers of one user at a JupyterHub.

    Parameters
    ----------
    api_url : str
        URL of the Hub's API, as in ``JUPYTERHUB_API_URL``.
    token : str
        A token with the scopes ``servers``, ``read:servers``, ``read:users:name`` (each for this user) and ``proxy``.
    user : str
        The user.
    server_options : mapping
        Options for the Hub's spawner.
    verify, client_cert
        As for `JupyterConnectionInfo`.
    """

    def __init__(
        self,
        api_url: str,
        token: str,
        user: str,
        server_options: Mapping[str, Any],
        *,
        verify: bool | str = True,
        client_cert: str | tuple[str, str] | None = None,
    ) -> None:
        base_url = api_url.rstrip("/").removesuffix("/hub/api")
        self._driver = AioDriver(
            JupyterConnectionInfo.from_url(base_url, token, verify=verify, client_cert=client_cert)
        )
        self._user = user
        self._server_options = server_options
        # Addresses by name and time of start. They are kept while the Hub or its proxy's routes are away.
        self._addresses: dict[tuple[str, str], str] = {}

    async def close(self) -> None:
        """Close the connections to the Hub."""
        await self._driver.close()

    def _api(self, name: str = "") -> HubServerApi:
        return HubServerApi(self._user, name, NO_RETRY)

    async def list(self) -> list[FleetServer]:
        """Return all named servers of the user, also stopped ones."""
        operation = self._api().states(with_stopped=True)
        async with _hub_or_unavailable():
            states = await self._driver.perform(run_until_deadline(_answer_deadline(), operation))
        ready = {(name, state.started) for name, state in states.items() if state.ready}
        if not ready <= self._addresses.keys():
            found = await self._find_addresses()
            fresh = {(name, started): found[name] for name, started in ready if name in found}
            self._addresses = {key: self._addresses[key] for key in ready & self._addresses.keys()} | fresh
        return [
            FleetServer(name, self._addresses.get((name, state.started), ""), state.started, state.ready, state.pending)
            for name, state in states.items()
            if name
        ]

    async def issue_access_token(self, life_seconds: int) -> str:
        """Return a new token of the user, which makes its bearer the owner of the user's servers."""
        operation = self._api().issue_token(life_seconds, "pool of servers", for_all_servers=True)
        async with _hub_or_unavailable():
            return (await self._driver.perform(run_until_deadline(_answer_deadline(), operation))).text

    async def _find_addresses(self) -> dict[str, str]:
        try:
            return await self._driver.perform(list_addresses(self._user, _ROUTES_SECONDS))
        except ClientError:  # the proxy is away; the next list asks again
            return {}

    async def start(self, name: str) -> None:
        """Start a server and wait until the Hub says that it is ready."""
        deadline = Deadline.of_start(_START_SECONDS, f"the server {self._user}/{name}")
        launch = HubLaunch(self._api(name), self._server_options, deadline, ProgressReporter(deadline, None))
        try:
            async with _hub_or_unavailable():
                await self._driver.perform(run_until_deadline(deadline, launch.run()))
        except Unavailable:
            raise
        except ExecError as error:
            raise NoServerStarted(error.message, retry_after_seconds=error.retry_after_seconds) from None

    async def stop(self, name: str, *, removes: bool = True) -> None:
        """Stop a server and wait until it has ended; one that is gone is no error."""
        deadline = Deadline(_STOP_SECONDS, f"the JupyterHub did not stop {name}", "see the Hub's log", Unavailable)
        async with _hub_or_unavailable():
            await self._driver.perform(run_until_deadline(deadline, self._api(name).stop("", remove=removes)))


def _answer_deadline() -> Deadline:
    return Deadline(_ANSWER_SECONDS, "the JupyterHub did not answer", "is it running?", Unavailable)


@asynccontextmanager
async def _hub_or_unavailable() -> AsyncIterator[None]:
    """Raise `Unavailable` if the Hub cannot be reached, or something else answers in its place."""
    try:
        yield
    except (ConnectionFailed, ConnectionLost, UnexpectedAnswer) as error:
        raise Unavailable(f"the JupyterHub cannot be reached: {error.message}") from error
