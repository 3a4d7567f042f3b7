"""Checks of the site that a request comes from: its Host and Origin headers; `gate` checks who sends it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from jupyter_server.base.handlers import APIHandler

from ..errors import HostNotAllowed, OriginNotAllowed

HOST_REFUSED = (
    "this server does not answer to the host name in that address; use another one, such as localhost, or have its "
    "owner set ServerApp.local_hostnames or ServerApp.allow_remote_access"
)
ORIGIN_REFUSED = "a browser sent this from another site; set ServerApp.allow_origin if it may"
_HOST_PORT = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d+)?")


def site_of(origin: str) -> str:
    """Return the host and port that an Origin header names.

    Raises
    ------
    OriginNotAllowed
        If it is no URL.
    """
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        raise OriginNotAllowed("the Origin header is not a URL, so it is not known which site sent this") from None


def check_senders(handler: APIHandler) -> None:
    """Reject an Origin, and remove a Referer, that the host's checks or its log would fail to parse."""
    headers = handler.request.headers
    for name in ("Origin", "Sec-WebSocket-Origin"):
        site_of(headers.get(name, ""))
    try:
        urlsplit(headers.get("Referer", ""))
    except ValueError:
        del headers["Referer"]


def check_site(handler: APIHandler) -> None:
    """Check Host and Origin as Jupyter Server's own endpoints do for a request that has no user yet.

    Raises
    ------
    HostNotAllowed, OriginNotAllowed
        If the server does not answer to this host name, or to pages of this site.
    """
    check_senders(handler)
    if not handler.check_host():
        raise HostNotAllowed(HOST_REFUSED)
    handler.current_user = None  # with a user, the server would skip the origin check
    if not handler.check_origin():
        raise OriginNotAllowed(ORIGIN_REFUSED)


def is_host_allowed(host_header: str, allowed_hosts: list[str]) -> bool:
    """Return whether a Host header is allowed.

    An IP address always is, since a web page cannot make a browser send one for a name of its own. A name must be
    ``localhost`` or listed.
    """
    match = _HOST_PORT.fullmatch(host_header)
    name = match[1].strip("[]").lower() if match else ""
    if name == "localhost" or "*" in allowed_hosts or name in (allowed.lower() for allowed in allowed_hosts):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
