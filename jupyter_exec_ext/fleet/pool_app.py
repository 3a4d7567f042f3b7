"""Command ``jupyter exec pool``: reads the configuration and what JupyterHub gives a service, and starts a `pool`."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable

from jupyter_core.application import JupyterApp

from ..errors import ExecError, Unavailable
from .hub_fleet import HubFleet
from .pool import Pool, make_ask_hub
from .pool_settings import ExecPool

_TOKEN_SECONDS = 86_400
_RENEW_AGAIN_SECONDS = 60
_NEEDED = ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL")


class ExecPoolApp(JupyterApp):
    """A pool of servers at a JupyterHub, as one of its services."""

    name = "jupyter-exec-pool"
    description = __doc__
    classes = [ExecPool]  # noqa: RUF012  # as traitlets has it

    def start(self) -> None:
        """Serve until stopped."""
        missing = [name for name in _NEEDED if not os.environ.get(name)]
        if missing:
            self.exit_with(
                f"{' and '.join(missing)} must be in the environment: the token in c.JupyterHub.services, "
                "and the URL of the Hub's API, such as http://127.0.0.1:8081/hub/api"
            )
        try:
            asyncio.run(self._serve())
        except ExecError as error:
            self.exit_with(error.message)

    def exit_with(self, problem: str) -> None:
        """End with a message."""
        self.log.critical(problem)
        self.exit(1)

    async def _serve(self) -> None:
        settings = ExecPool(parent=self, log=self.log)
        # Taken out of the environment, so that nothing that is started here has it.
        api_token, api_url = os.environ.pop("JUPYTERHUB_API_TOKEN"), os.environ["JUPYTERHUB_API_URL"]
        certificate: tuple[str, str] | None = None
        verify: bool | str = True
        tls = None
        if os.environ.get("JUPYTERHUB_SSL_CERTFILE"):  # a Hub with internal_ssl
            files = [os.environ[f"JUPYTERHUB_SSL_{name}"] for name in ("CERTFILE", "KEYFILE", "CLIENT_CA")]
            certificate, verify = (files[0], files[1]), files[2]
            tls = ssl.create_default_context(cafile=files[2])
            tls.load_cert_chain(files[0], files[1])
        fleet = HubFleet(
            api_url, api_token, settings.hub_user, settings.server_options, verify=verify, client_cert=certificate
        )
        pool_token = renewed_token(fleet.issue_access_token, _TOKEN_SECONDS)
        prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/")
        try:
            await Pool(settings, fleet, make_ask_hub(api_url, api_token), pool_token, prefix, tls).serve()
        finally:
            await fleet.close()


def renewed_token(issue: Callable[[int], Awaitable[str]], life_seconds: int) -> Callable[[], Awaitable[str]]:
    """Return a function that returns a token, a new one when half of the life of the one before is over."""
    token, renew_at, lock = "", 0.0, asyncio.Lock()

    async def current() -> str:
        nonlocal token, renew_at
        if time.monotonic() >= renew_at:
            async with lock:
                if time.monotonic() >= renew_at:
                    try:
                        token = await issue(life_seconds)
                        renew_at = time.monotonic() + life_seconds / 2
                    except Unavailable:  # the Hub is away; the token before is good for some time
                        if not token:
                            raise
                        renew_at = time.monotonic() + _RENEW_AGAIN_SECONDS
        return token

    return current
