"""Connection info of a Jupyter server: address, token and TLS settings."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from .trusted_files import read_own_text

# First segments of the paths of front ends and APIs; the segments before are the server's base URL.
_FRONT_ENDS = frozenset({"lab", "tree", "notebooks", "edit", "terminals", "doc", "consoles", "api", "exec", "login"})
# A server of this machine accepts connections at once, or has left its file behind in a crash.
_PROBE_SECONDS = 0.5
_URL_DELIMITERS = "/?#@"
# Begins at the scheme, and ends before the first character that can stand before a secret.
_SHOWN_OF_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?(\[[0-9A-Fa-f:.]*\]|[^\s/?#@:;&=\\\[\]]*)(:[0-9]+)?")


@dataclass
class JupyterConnectionInfo:
    """Address, token and TLS settings of a Jupyter server.

    Parameters
    ----------
    host : str
        Host name or address.
    use_https : bool
        Whether to use HTTPS (and WSS).
    port : int, optional
        The port; by default the scheme's.
    token : str, optional
        The server's token. It is sent in a header only, and `repr` leaves it out. An empty one means no token, as with
        Jupyter's own ``--IdentityProvider.token=``.
    base_url : str
        Path of the server, such as ``/user/ada/`` under JupyterHub.
    verify : bool or str
        Whether to check the server's certificate, or the path of a CA bundle to check it with.
    client_cert : str or (str, str), optional
        Path of a client certificate with its key, or the paths of both.
    why_lost : callable, optional
        Called during an outage, from any thread. It returns the reason if the server will not come back, else None. A
        JupyterHub knows this.

    Raises
    ------
    ValueError
        If the host is a URL, or the token holds anything but printable ASCII characters.
    TypeError
        If the token is no text, such as the path of its file.
    """

    host: str
    use_https: bool
    port: int | None = None
    token: str | None = None
    base_url: str = "/"
    verify: bool | str = True
    client_cert: str | tuple[str, str] | None = None
    why_lost: Callable[[], str | None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if any(character in self.host for character in _URL_DELIMITERS):
            raise ValueError(
                f"{_without_secrets(self.host)} is a URL, not a name or an address of a host; for a URL call from_url"
            )
        if self.token is not None and not isinstance(self.token, str):
            kind = type(self.token).__name__
            raise TypeError(f"the token is a text, not of type {kind}; of a file, pass Path(FILE).read_text()")
        self.token = (self.token or "").strip() or None  # files and copied tokens end with a line break
        # HTTP libraries reject other characters with a message that shows the whole header.
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("the token holds characters other than printable ASCII; copy it again, without quotes")
        path = "/".join(part for part in self.base_url.split("/") if part)
        self.base_url = f"/{path}/" if path else "/"

    def __repr__(self) -> str:
        token = "None" if self.token is None else "'***'"
        return (
            f"{type(self).__name__}(host={self.host!r}, use_https={self.use_https!r}, port={self.port!r}, "
            f"token={token}, base_url={self.base_url!r})"
        )

    def _root(self, scheme: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{scheme}{'s' if self.use_https else ''}://{host}{port}{quote(self.base_url, safe='/@%~+:,;=!$&()*')}"

    @property
    def url(self) -> str:
        """The server's base URL, with a trailing slash and without the token."""
        return self._root("http")

    @property
    def ws_url(self) -> str:
        """The base URL for WebSockets."""
        return self._root("ws")

    @property
    def auth_headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        return {} if self.token is None else {"Authorization": f"token {self.token}"}

    @property
    def ca_bundle(self) -> str | None:
        """The CA bundle to check the server's certificate with, if it is not the system's.

        If `verify` names none, it is that of the environment variables that requests reads, for all kinds of client.
        """
        if isinstance(self.verify, str):
            return self.verify
        return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or None

    @property
    def is_loopback(self) -> bool:
        """True if the server is on this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def proxy(self) -> str | None:
        """The environment's HTTP proxy for the server; there is none for this machine."""
        if self.is_loopback or proxy_bypass(self.host):
            return None
        proxies = getproxies()
        proxy = proxies.get("https" if self.use_https else "http") or proxies.get("all")
        # aiohttp cannot use a SOCKS proxy, which ALL_PROXY often names.
        return proxy if proxy and urlsplit(proxy).scheme in ("http", "https") else None

    @classmethod
    def from_url(
        cls,
        url: str,
        token: str | None = None,
        *,
        verify: bool | str = True,
        client_cert: str | tuple[str, str] | None = None,
    ) -> JupyterConnectionInfo:
        """Parse a URL as a browser or a server's log shows it.

        The path of a front end is removed: ``http://host:8888/user/ada/lab?token=secret`` is the server at
        ``/user/ada/``.

        Parameters
        ----------
        url : str
            The URL, with or without a ``?token=``.
        token : str, optional
            The token; by default that of the URL.
        verify, client_cert
            As for the class.

        Raises
        ------
        ValueError
            If it is no HTTP URL, or holds a user name.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError:  # its message can hold a password
            raise _no_server_url(url) from None
        if parts.username is not None:
            raise ValueError("a URL with a user name or password is not supported; pass the server's token instead")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _no_server_url(url)
        # It is sent in a header instead, since servers and proxies log URLs.
        in_query = parse_qs(parts.query).get("token", [None])[0]
        return cls(
            host=parts.hostname,
            use_https=parts.scheme == "https",
            port=_port_of(parts, url),
            token=token if token is not None else in_query,
            base_url=_base_path(unquote(parts.path).split("/")),
            verify=verify,
            client_cert=client_cert,
        )

    @classmethod
    def discover(cls, runtime_dir: str | Path | None = None) -> list[JupyterConnectionInfo]:
        """Return the Jupyter servers of this user that run on this machine, newest first.

        A file that belongs to another user, or that others can write, is ignored.

        Parameters
        ----------
        runtime_dir : path, optional
            Directory of the servers' files; by default Jupyter's.
        """
        directory = _runtime_dir() if runtime_dir is None else Path(runtime_dir)
        files = [*directory.glob("jpserver-*.json")] if directory.is_dir() else []
        files.sort(key=_modified_at, reverse=True)
        return [info for info in map(_from_server_file, files) if info is not None]


def _port_of(parts: SplitResult, url: str) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise ValueError(
            f"the port in {_without_secrets(url)} is not a number from 0 to 65535; correct the URL"
        ) from None


def _no_server_url(url: str) -> ValueError:
    return ValueError(f"{_without_secrets(url)} is not the URL of a server; write one like https://host:port/path/")


def _without_secrets(url: str) -> str:
    """Return the scheme, the host and the port of a URL for a message, without a token and without a password."""
    shown = _SHOWN_OF_URL.match(url)
    # A password may hold any of the characters that end a host, so all before an @ may belong to it.
    if shown is None or "@" in url:
        return "this text"
    return repr(shown[0])


def _base_path(segments: Sequence[str]) -> str:
    """Cut a path before a front end's segment, except directly after ``user``: a user may be called ``lab``."""
    kept: list[str] = []
    for segment in segments:
        if segment in _FRONT_ENDS and (not kept or kept[-1] != "user"):
            break
        kept.append(segment)
    return "/".join(kept)


def _runtime_dir() -> Path:
    # Only `discover` needs jupyter_core, and a client must start fast.
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir())


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # its server has just stopped
        return 0.0


def _from_server_file(path: Path) -> JupyterConnectionInfo | None:
    """Read the file of a server; return None if its process has ended or does not accept connections."""
    try:
        data = json.loads(read_own_text(path))
        # Another program may have its port now, and would get its token.
        if _has_ended(data.get("pid")):
            return None
        info = JupyterConnectionInfo.from_url(data["url"], data.get("token") or None)
        port = info.port or (443 if info.use_https else 80)
        socket.create_connection((info.host, port), timeout=_PROBE_SECONDS).close()
    # A server that was killed leaves its file behind, and one that is just starting may have written half of it.
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return info


def _has_ended(pid: object) -> bool:
    """Return whether it is certain that no process has this id; Jupyter's own lists of servers judge alike."""
    # On Windows, `os.kill` ends a process. Zero and negative numbers stand for groups of processes.
    if os.name != "posix" or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process, such as that of a server in a container
        return False
    return False


@runtime_checkable
class JupyterConnectable(Protocol):
    """Interface of an object with a Jupyter server."""

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the server."""


def connection_to(
    server: str | JupyterConnectionInfo | JupyterConnectable, token: str | None = None
) -> JupyterConnectionInfo:
    """Return the connection info of a server given in any of the accepted ways.

    Raises
    ------
    ValueError
        If `server` is a string that is no URL.
    TypeError
        If it is of another type.
    """
    if isinstance(server, str):
        return JupyterConnectionInfo.from_url(server, token)
    if isinstance(server, JupyterConnectable):
        server = server.connection_info
    if isinstance(server, JupyterConnectionInfo):
        return server if token is None else replace(server, token=token)
    # AutoGen's own records have the same fields, so that its servers work with our executor.
    if hasattr(server, "host") and hasattr(server, "use_https"):
        own_token = getattr(server, "token", None)
        return JupyterConnectionInfo(
            server.host, server.use_https, getattr(server, "port", None), own_token if token is None else token
        )
    raise TypeError(
        f"a server cannot be of type {type(server).__name__}; pass its URL, such as 'http://localhost:8888/', or an "
        "object that has its connection info"
    )
