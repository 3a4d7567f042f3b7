"""What the engine is told of a container: its limits, its rights and what it sees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .container_address import seen_by_engine

_NANO = 1_000_000_000


def limits(memory: str | int | None, cpus: float | None, max_processes: int | None) -> dict[str, Any]:
    """Return the limits of a container; None leaves one to the engine."""
    given: dict[str, Any] = {}
    if memory is not None:
        given |= {"mem_limit": memory, "memswap_limit": memory}  # the two are the same: no swap space
    if cpus is not None:
        given["nano_cpus"] = round(cpus * _NANO)
    if max_processes is not None:
        given["pids_limit"] = max_processes
    return given


def hardened(env: Mapping[str, str]) -> dict[str, Any]:
    """Return what an image of this package can do without: every capability, and getting more rights.

    An init process passes signals on, and takes in processes that kernels leave behind.
    """
    return {"environment": dict(env), "init": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}


def mounted(client: Any, directory: Path, own: Any | None, work_dir: str, *, as_owner: bool) -> dict[str, Any]:
    """Return what makes a directory the one that code works in.

    Parameters
    ----------
    own : docker.models.containers.Container or None
        The container that this process runs in: the engine knows its paths by other names.
    work_dir : str
        What the code knows it by.
    as_owner : bool
        Whether to run as the directory's owner, so that code can write there and its files are the owner's.
    """
    path = str(directory) if own is None else seen_by_engine(str(directory), own.attrs.get("Mounts") or [])
    given: dict[str, Any] = {"volumes": {path: {"bind": work_dir, "mode": "rw"}}, "working_dir": work_dir}
    if as_owner:
        given["user"] = _owner(directory, client.info().get("SecurityOptions") or [])
    return given


def working_in(work_dir: str, *, empty: bool) -> dict[str, Any]:
    """Return what makes a directory of the container the one that code works in.

    Parameters
    ----------
    empty : bool
        Whether it is to be an empty one in the container's memory, that anybody there may write to.
    """
    given: dict[str, Any] = {"working_dir": work_dir}
    return given | ({"tmpfs": {work_dir: "rw,exec,mode=1777"}} if empty else {})


def _owner(directory: Path, security: list[str]) -> str:
    """Return the owner, as the container has it: to an engine without root, the user who runs it is the root inside."""
    if any("name=rootless" in option for option in security):
        return "0:0"
    status = os.stat(directory)
    return f"{status.st_uid}:{status.st_gid}"
