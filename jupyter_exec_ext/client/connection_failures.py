"""Messages for connections that failed: cause, address and remedy, in place of what HTTP libraries say."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from functools import partial

from .api.steps import Failure
from .server_connection import JupyterConnectionInfo

# A server that is up accepts a connection at once; a firewall may drop the packets without an answer.
_CONNECT_SECONDS = 10.0
# Also for the handshake, which a server without TLS may read as the beginning of a long request, and not answer.
_TLS_SECONDS = 4.0
_PROBE_SECONDS = 2.0
_MAX_CAUSES = 20
_MAX_MESSAGE_CHARS = 300
_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


def connect_seconds(connection: JupyterConnectionInfo) -> float:
    """Return the timeout of a connection, with its TLS handshake."""
    return _TLS_SECONDS if connection.use_https else _CONNECT_SECONDS


def connection_failure(error: BaseException, message: str, connection: JupyterConnectionInfo, *, sent: bool) -> Failure:
    """Return the failure for an error of an HTTP library.

    Parameters
    ----------
    error : BaseException
        The error.
    message : str
        The library's own message, for an error that is not known here.
    connection : JupyterConnectionInfo
        The server.
    sent : bool
        Whether the server may have received the request.
    """
    if sent:
        return Failure(True, message[:_MAX_MESSAGE_CHARS])
    known = next(filter(None, (_explanation(cause, connection) for cause in _causes(error))), None)
    if known is not None:
        return Failure(False, known, is_explained=True)
    # Only the server's own port can tell; a proxy answers in its place.
    may_be_http = connection.use_https and connection.proxy is None
    diagnose = partial(http_problem, connection) if may_be_http else None
    return Failure(False, message[:_MAX_MESSAGE_CHARS], diagnose=diagnose)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it stands for; HTTP libraries wrap them in several ways."""
    waiting: list[object] = [error]
    seen: list[BaseException] = []
    while waiting and len(seen) < _MAX_CAUSES:
        current = waiting.pop(0)
        if isinstance(current, BaseException) and not any(current is each for each in seen):
            seen.append(current)
            yield current
            inner = [getattr(current, name, None) for name in ("reason", "os_error", "certificate_error")]
            waiting += [current.__cause__, *inner, *current.args, current.__context__]


def _explanation(cause: BaseException, connection: JupyterConnectionInfo) -> str | None:
    url = connection.url
    match cause:
        case ConnectionRefusedError():
            how = "start it with 'jupyter exec serve', or " if connection.is_loopback else ""
            return f"nothing listens at {url}; {how}check its host and port"
        case socket.gaierror():
            return f"there is no machine named {connection.host!r}; check the address"
        case ssl.SSLCertVerificationError() if hasattr(cause, "verify_message"):  # aiohttp's own kind has none
            return (
                f"the certificate of {url} is not trusted ({cause.verify_message}); name the file of its authority: "
                "verify= in Python, --ca-bundle on the command line"
            )
        case OSError() if cause.errno in _UNREACHABLE:
            return f"the network of {connection.host!r} cannot be reached from here"
    return None


def http_problem(connection: JupyterConnectionInfo) -> str | None:
    """Ask a port that gave no TLS answer for an HTTP one; return the problem if it gives one. It is sent no token."""
    port = connection.port or 443
    try:
        with socket.create_connection((connection.host, port), timeout=_PROBE_SECONDS) as plain:
            plain.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            answer = plain.recv(5)
    except OSError:
        return None
    if not answer.startswith(b"HTTP"):
        return None
    return f"that port speaks http, not https; use {connection.url.replace('https:', 'http:', 1)}"
