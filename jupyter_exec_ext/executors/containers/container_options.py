"""Options of a container as Docker's library takes them: limits, rights, and the directory that code works in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

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
