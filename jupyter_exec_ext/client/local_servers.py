"""Server discovery: the server of the environment, else this user's newest local one that answers ``exec/v1``.

A token is sent only to a server whose runtime file belongs to this user and which no other user can write: the file
says where the token goes.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import replace

from ..errors import ConnectionFailed, PoliciesInvalid
from .server_connection import JupyterConnectable, JupyterConnectionInfo, connection_to

#: Stands for a server that this module chooses.
AUTO = "auto"
#: Stands for no server at the command line: commands that can start a server of their own do so.
NONE = "none"
SERVER_VARIABLE, TOKEN_VARIABLE = "JUPYTER_EXEC_SERVER", "JUPYTER_TOKEN"
_PROBE_SECONDS = 3.0
_MAX_ANSWER_BYTES = 1_000_000
_HOW = (
    f"start one with 'jupyter exec serve', or name one: its URL with its token, or {SERVER_VARIABLE} and "
    f"{TOKEN_VARIABLE} in the environment"
)


def find_connection(
    server: str | JupyterConnectionInfo | JupyterConnectable = AUTO, token: str | None = None
) -> JupyterConnectionInfo:
    """Return the connection info of a server given in any way, ``"auto"`` among them.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable
        As for the clients.
    token : str, optional
        The server's token.

    Raises
    ------
    ConnectionFailed
        If a server was to be chosen and there is none.
    ValueError, TypeError
        See `connection_to`.
    """
    if isinstance(server, str) and server == AUTO:
        return _with_token(_of_environment() or newest_with_api(token), token)
    return connection_to(server, token)


def server_of_environment() -> str | None:
    """Return the server that the environment names, as a URL or a profile; None if it leaves the choice open."""
    server = os.environ.get(SERVER_VARIABLE, "").strip()
    return None if server in ("", AUTO, NONE) else server


def _of_environment() -> JupyterConnectionInfo | None:
    server = server_of_environment()
    return None if server is None else connection_to_named(server)


def connection_to_named(server: str, token: str | None = None) -> JupyterConnectionInfo:
    """Return the connection info of a server given by its URL or by the name of a profile.

    Parameters
    ----------
    server : str
        A URL or a name. A word without a dot, colon or slash is a name.
    token : str, optional
        The token; by default that of the URL or of the profile.

    Raises
    ------
    ProfileError
        If there is no such profile, or its file or token file cannot be used.
    ValueError
        If it is no URL.
    """
    from .server_profiles import find_profile, is_profile_name  # a client must start fast, and few need a profile

    if is_profile_name(server):
        return find_profile(server).connection_info(token)
    return JupyterConnectionInfo.from_url(server, token)


def token_of_environment() -> str | None:
    """Return the token of the environment; None if it has none."""
    return os.environ.get(TOKEN_VARIABLE, "").strip() or None


def _with_token(info: JupyterConnectionInfo, token: str | None) -> JupyterConnectionInfo:
    return replace(info, token=token or info.token or token_of_environment())


def newest_with_api(token: str | None = None, *, verify: bool | str = True) -> JupyterConnectionInfo:
    """Return the newest running server of this user that answers ``exec/v1``.

    In a terminal of a JupyterHub user's server it is this server, and the Hub's token goes to no other one.

    Parameters
    ----------
    token : str, optional
        The token to ask with; by default that of the server's own file.
    verify : bool or str
        As for `JupyterConnectionInfo`.

    Raises
    ------
    ConnectionFailed
        If none of them does, or none runs.
    """
    found = [replace(info, verify=verify) for info in JupyterConnectionInfo.discover()]
    own = [info for info in found if info.base_url == os.environ.get("JUPYTERHUB_SERVICE_PREFIX")]
    if own:
        # A single-user server of a JupyterHub may write an empty token into its file; it accepts the Hub's tokens.
        hub_token = os.environ.get("JUPYTERHUB_API_TOKEN") or None
        found = [own[0] if own[0].token is not None else replace(own[0], token=hub_token)]
    for info in found:
        if has_api(_with_token(info, token)):
            return info
    if not found:
        raise ConnectionFailed(f"no Jupyter server of yours runs on this machine; {_HOW}")
    urls = ", ".join(info.url for info in found)
    raise ConnectionFailed(
        f"none of your running Jupyter servers ({urls}) has jupyter_exec_ext; install it in the environment of one and "
        f"restart that, or {_HOW}"
    )


def has_api(info: JupyterConnectionInfo) -> bool:
    """Return whether a server answers ``exec/v1``, also if it refuses the token or its policies have a mistake."""
    request = urllib.request.Request(f"{info.url}exec/v1", headers=info.auth_headers)  # noqa: S310  # http or https
    context = ssl.create_default_context(cafile=info.ca_bundle) if info.use_https else None
    # Without the environment's proxy: these servers are on this machine.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    try:
        with opener.open(request, timeout=_PROBE_SECONDS) as answer:
            body = json.loads(answer.read(_MAX_ANSWER_BYTES))
            return isinstance(body, dict) and body.get("name") == "jupyter_exec_ext"
    except urllib.error.HTTPError as error:
        with error:
            return _is_refusal_of_api(error)
    except (OSError, ValueError):
        return False


def _is_refusal_of_api(error: urllib.error.HTTPError) -> bool:
    try:
        body = json.loads(error.read(_MAX_ANSWER_BYTES))
    except (OSError, ValueError):
        return False
    code = body.get("code") if isinstance(body, dict) else None
    if error.code == PoliciesInvalid.status:  # a proxy answers so, too, but not with this code
        return code == PoliciesInvalid.code
    return error.code in (401, 403) and isinstance(code, str)
