"""How the server in a container is reached, decided without asking anybody."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Reach:
    """Where a client finds the server.

    Attributes
    ----------
    host : str or None
        The name or address to connect to; None for the container's own address, which it gets when it starts.
    publish_at : str or None
        The address of the engine's machine at which the port is published; None for nowhere.
    network : str or None
        The network that the container joins; None for the engine's usual one.
    """

    host: str | None
    publish_at: str | None
    network: str | None


def engine_host(base_url: str) -> str | None:
    """Return the name of the machine that a remote engine runs on, or None if it is this one.

    Parameters
    ----------
    base_url : str
        As ``DOCKER_HOST`` has it.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("tcp", "http", "https", "ssh") or not parts.hostname:
        return None
    name = parts.hostname
    if name == "localhost" or name.startswith("127.") or name == "::1":
        return None
    return name


def way_to(
    remote_host: str | None,
    *,
    network: str | None,
    internal: bool,
    own_network: bool,
    own_networks: Sequence[str] | None,
) -> Reach:
    """Decide how the server is reached.

    Parameters
    ----------
    remote_host : str or None
        What `engine_host` says.
    network : str or None
        The network that was asked for.
    internal : bool
        Whether the network has no way out. The engine then publishes no ports.
    own_network : bool
        Whether the container gets a network that nobody else is on.
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
        return _from_a_container(network, own_network, own_networks)
    if not internal:
        host = remote_host or _LOOPBACK
        return Reach(host=host, publish_at=_address_of(host), network=network)
    if remote_host is not None:
        raise ValueError("a network without a way out cannot be reached on another machine's engine")
    return Reach(host=None, publish_at=None, network=network)


def _from_a_container(network: str | None, own_network: bool, own_networks: Sequence[str]) -> Reach:
    """Let the two containers meet on a network that both are on."""
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


def _address_of(host: str) -> str:
    """Return the address by which this machine knows the engine's; the port is published there and nowhere else."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ValueError(f"the engine's host {host!r} has no address here: {error}") from error


def seen_by_engine(path: str, mounts: Sequence[Mapping[str, str]]) -> str:
    """Return what the engine's machine calls a path of the container that this process runs in.

    Parameters
    ----------
    mounts : sequence of mapping
        The container's, as the engine tells them.

    Raises
    ------
    ValueError
        If the path is in none of them: nothing outside of the container is there.
    """
    inside = PurePosixPath(path)
    for mount in sorted(mounts, key=lambda mount: len(mount["Destination"]), reverse=True):
        if inside.is_relative_to(mount["Destination"]):
            return str(PurePosixPath(mount["Source"]) / inside.relative_to(mount["Destination"]))
    raise ValueError(
        f"{path} is a directory of the container that this program runs in; only what is mounted into it can be shared"
    )
