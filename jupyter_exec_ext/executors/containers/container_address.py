"""Address of a server in a container: a published port, or the container's own address on a shared network."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Reach:
    """Way from a client to the server.

    Attributes
    ----------
    host : str or None
        The name or address to connect to; None for the container's own address, known once it has started.
    publish_at : str or None
        The address of the engine's machine at which the port is published; None for nowhere.
    network : str or None
        The network that the container joins; None for the engine's usual one.
    """

    host: str | None
    publish_at: str | None
    network: str | None


def remote_engine_host(base_url: str) -> str | None:
    """Return the host of an engine on another machine, None for one on this machine; `base_url` is ``DOCKER_HOST``."""
    parts = urlsplit(base_url)
    name = parts.hostname
    if parts.scheme not in ("tcp", "http", "https", "ssh") or not name:
        return None
    return None if name in ("localhost", "::1") or name.startswith("127.") else name


def find_reach(
    remote_host: str | None,
    *,
    network: str | None,
    internal: bool,
    own_network: bool,
    own_networks: Sequence[str] | None,
) -> Reach:
    """Return how the server can be reached.

    Parameters
    ----------
    remote_host : str or None
        The result of `remote_engine_host`.
    network : str or None
        The network that the user names.
    internal : bool
        Whether the network has no way out. The engine then publishes no ports.
    own_network : bool
        Whether the container gets a network to itself.
    own_networks : sequence of str or None
        The networks of the container that this process runs in, if it does.

    Raises
    ------
    ValueError
        If the server could not be reached.
    """
    if network in ("host", "none") or (network or "").startswith("container:"):
        raise ValueError(
            f"on the network {network!r} the server would not be reached by its published port; "
            "name a network of the engine, or use internet=False"
        )
    if own_networks:
        return _find_reach_from_container(network, own_network, own_networks)
    if not internal:
        host = remote_host or _LOOPBACK
        return Reach(host=host, publish_at=_resolve_host(host), network=network)
    if remote_host is not None:
        raise ValueError("a network without a way out cannot be reached on another machine's engine")
    return Reach(host=None, publish_at=None, network=network)


def _find_reach_from_container(network: str | None, own_network: bool, own_networks: Sequence[str]) -> Reach:
    if own_network:
        raise ValueError(
            "this program runs in a container, which is not on a network of the server's own: make one with "
            "docker network create --internal, connect this container to it, and pass network=… for internet=False"
        )
    if network is not None and network not in own_networks:
        raise ValueError(
            f"this program runs in a container which is not on the network {network!r}: "
            f"connect it (docker network connect), or choose one of {', '.join(own_networks)}"
        )
    return Reach(host=None, publish_at=None, network=network or own_networks[0])


def _resolve_host(host: str) -> str:
    """Return the address of the engine's machine: the port is published there and on no other address."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass  # a name
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ValueError(f"the engine's host {host!r} has no address here: {error}") from error
