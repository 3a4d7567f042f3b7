"""Options of a container as Docker's library takes them: limits, rights, directory, and network."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
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
    # The engine's machine has an address in each of its bridge networks, so it reaches the container's own.
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


# The engine counts processors in billionths.
_NANO = 1_000_000_000


def limit_options(memory: str | int | None, cpus: float | None, max_processes: int | None) -> dict[str, Any]:
    """Return the limits of a container; None leaves one to the engine."""
    options: dict[str, Any] = {}
    if memory is not None:
        options |= {"mem_limit": memory, "memswap_limit": memory}  # equal limits leave no swap space
    if cpus is not None:
        options["nano_cpus"] = round(cpus * _NANO)
    if max_processes is not None:
        options["pids_limit"] = max_processes
    return options


def hardened_options(env: Mapping[str, str]) -> dict[str, Any]:
    """Return options without capabilities and without ways to get them, for images of this package.

    The init process passes signals on and reaps the zombies that kernels leave behind.
    """
    return {"environment": dict(env), "init": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}


def mount_options(client: Any, directory: Path, own: Any | None, work_dir: str, *, as_owner: bool) -> dict[str, Any]:
    """Return options that mount a directory and make it the one that code works in.

    Parameters
    ----------
    client : docker.DockerClient
        The engine.
    directory : Path
        The directory, as this process names it.
    own : docker.models.containers.Container or None
        The container that this process runs in: the engine has other names for its paths.
    work_dir : str
        The directory's path in the new container.
    as_owner : bool
        Whether to run as the directory's owner, so that code can write there and its files are the owner's.
    """
    path = str(directory) if own is None else path_seen_by_engine(str(directory), own.attrs.get("Mounts") or [])
    options: dict[str, Any] = {"volumes": {path: {"bind": work_dir, "mode": "rw"}}, "working_dir": work_dir}
    if as_owner:
        options["user"] = _owner(directory, client.info().get("SecurityOptions") or [])
    return options


def work_dir_options(work_dir: str, *, empty: bool) -> dict[str, Any]:
    """Return options that make `work_dir` the one that code works in; if `empty`, a new one in memory."""
    # Docker's default is `noexec`, with which code could not load compiled modules from there.
    return {"working_dir": work_dir} | ({"tmpfs": {work_dir: "rw,exec,mode=1777"}} if empty else {})


def path_seen_by_engine(path: str, mounts: Sequence[Mapping[str, str]]) -> str:
    """Return the engine's name for a path of the container that this process runs in.

    Parameters
    ----------
    path : str
        The path, as this process names it.
    mounts : sequence of mapping
        The container's mounts, as the engine lists them.

    Raises
    ------
    ValueError
        If the path is in none of them, so that it does not exist outside of the container.
    """
    inside = PurePosixPath(path)
    # The longest first: mounts may be nested, and the inner one hides the outer one.
    for mount in sorted(mounts, key=lambda mount: len(mount["Destination"]), reverse=True):
        if inside.is_relative_to(mount["Destination"]):
            return str(PurePosixPath(mount["Source"]) / inside.relative_to(mount["Destination"]))
    raise ValueError(
        f"{path} is a directory of the container that this program runs in; only what is mounted into it can be shared"
    )


def _owner(directory: Path, security_options: Sequence[str]) -> str:
    # Root inside of a rootless engine's containers is the user who runs the engine.
    if any("name=rootless" in option for option in security_options):
        return "0:0"
    status = os.stat(directory)
    return f"{status.st_uid}:{status.st_gid}"
