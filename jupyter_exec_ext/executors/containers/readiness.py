"""Whether a server in a container is there: it must answer, and let us in."""

from __future__ import annotations

import time
from http import HTTPStatus

import requests

from ...client.server_connection import JupyterConnectionInfo
from .container_streams import Attached

_ASK_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


def wait_until_ready(info: JupyterConnectionInfo, output: Attached, timeout_seconds: float) -> None:
    """Ask the server for its kernelspecs until it answers with them. That a container runs says nothing yet.

    Raises
    ------
    ValueError
        If the container ends, the server refuses our token, or the time is up; with the last lines of its output.
    """
    deadline = time.monotonic() + timeout_seconds
    session = requests.Session()
    session.trust_env = False  # no credentials from a netrc file; the proxy is named below
    proxies = {"http": info.proxy} if info.proxy else {}
    with session:
        heard = "it did not answer"
        while True:
            try:
                status = session.get(
                    f"{info.url}api/kernelspecs",
                    headers=info.auth_headers,
                    proxies=proxies,
                    timeout=_ASK_SECONDS,
                    allow_redirects=False,
                ).status_code
            except requests.RequestException as error:
                heard = f"it did not answer: {type(error).__name__}"
            else:
                if status == HTTPStatus.OK:
                    return
                heard = f"it answered with status {status}"
                if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    raise _failed(f"refuses our token (status {status}); does its image respect TOKEN?", info, output)
            if output.ended.wait(_PAUSE_SECONDS):
                raise _failed("ended before it answered", info, output)
            if time.monotonic() > deadline:
                raise _failed(f"was not ready within {timeout_seconds:g} s: {heard}", info, output)


def _failed(what: str, info: JupyterConnectionInfo, output: Attached) -> ValueError:
    """Return the error, without the token if an image prints it."""
    printed = output.last_lines()
    if info.token:
        printed = printed.replace(info.token, "***")
    return ValueError(f"the server in the container, at {info.url}, {what}\n{printed}".rstrip())
