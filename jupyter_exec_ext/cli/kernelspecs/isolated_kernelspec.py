"""Kernelspecs like installed ones, whose kernels are isolated: what is checked of them, and how they are written."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from ...isolation.common.isolation_support import IsolationUnavailableError
from ...isolation.common.launch_request import View
from ...isolation.common.leftovers import base_directory
from ...isolation.common.visible_files import TooMuchToSeeError, view_of
from ..server_choice import UsageError
from .kernelspec_place import Place, Written, checked_name
from .local_kernels import PLAIN, PROVISIONERS, LocalKernel, installed, names_of

# What a working directory can be beside a path.
WORKING_DIRECTORIES = ("launched", "private")
_ADJECTIVES = {"sandbox": "sandboxed", "landlock": "Landlock"}
_PLACEHOLDER = re.compile(r"\{(resource_dir|prefix)\}")
# A bare one of these is the Python that Jupyter itself runs in.
_THIS_PYTHON = ("python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info))


@dataclass(frozen=True, slots=True)
class Wanted:
    """An isolated kernelspec to be written.

    Parameters
    ----------
    level : str
        The isolation, a key of `PROVISIONERS`.
    name, display_name : str
        Empty for ones that are made from the original's.
    config : mapping
        What its provisioner is told, as far as that was said.
    prefix : str or None
        The installation it becomes a part of; None for the user's own kernelspecs.
    replace : bool
        Whether a kernelspec of the same name may be overwritten.
    """

    level: str
    origin: str
    name: str = ""
    display_name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    prefix: str | None = None
    replace: bool = False


def write(wanted: Wanted) -> Written:
    """Write a kernelspec, after everything about it was checked.

    Raises
    ------
    UsageError
        Before anything was written; or where it cannot be written.
    """
    manager = KernelSpecManager()
    kernels = installed(manager)
    kernel = origin_of(wanted.origin, kernels, "isolated")
    name = checked_name(wanted.name or f"{kernel.name}-{wanted.level}")
    place = Place(manager, name, wanted.prefix)
    if not wanted.replace:
        place.require_free(kernels)
    doubts = list(_unseen(kernel, _view(kernel, wanted.config)))
    document = _document(kernel, wanted)
    install_like(kernel, place, document)
    return Written(name, str(document["display_name"]), str(place.destination), [*doubts, *place.doubts()])


def origin_of(origin: str, kernels: Sequence[LocalKernel], what: str) -> LocalKernel:
    """Return the kernelspec to make one like, if one can be made whose kernels are `what`; raises `UsageError`."""
    usable = [kernel for kernel in kernels if kernel.spec is not None and kernel.provisioner == PLAIN]
    kernel = next((kernel for kernel in kernels if kernel.name == origin.lower()), None)
    if kernel is None:
        raise UsageError(f"no kernelspec {origin!r} is installed here; --from can be: {names_of(usable)}")
    if kernel.spec is None:
        raise UsageError(f"the kernelspec in {kernel.directory} cannot be read: {kernel.problem}")
    if kernel.provisioner in PROVISIONERS.values():
        raise UsageError(
            f"the kernelspec {kernel.name!r} is one with isolation already ({kernel.provisioner}); "
            f"--from can be: {names_of(usable)}"
        )
    if kernel.provisioner != PLAIN:
        raise UsageError(
            f"the kernels of {kernel.name!r} are started by {kernel.provisioner!r}, and only those that this machine "
            f"starts itself can be {what} here; --from can be: {names_of(usable)}"
        )
    if not kernel.spec.argv:
        raise UsageError(f"the kernelspec in {kernel.directory} names no command ('argv'); correct it")
    return kernel


def _view(kernel: LocalKernel, config: Mapping[str, Any]) -> View:
    """Return what a kernel would see, if that can be allowed."""
    chosen = config.get("working_directory", WORKING_DIRECTORIES[0])
    try:
        with tempfile.TemporaryDirectory() as empty:
            return view_of(
                command_of(kernel),
                empty if chosen in WORKING_DIRECTORIES else chosen,
                resource_directory=kernel.directory,
                read_only=config.get("read_only", ()),
                writable=config.get("writable", ()),
                secret=[str(base_directory())] if sys.platform.startswith("linux") else [],
            )
    except (IsolationUnavailableError, TooMuchToSeeError) as error:
        raise UsageError(str(error)) from error
    except FileNotFoundError as error:
        raise UsageError(f"{error}; install it, or correct the kernelspec in {kernel.directory}") from error


def command_of(kernel: LocalKernel) -> list[str]:
    """Return the command of a kernel as Jupyter would run it, but for the connection file."""
    assert kernel.spec is not None
    places = {"resource_dir": kernel.directory, "prefix": sys.prefix}
    command = [_PLACEHOLDER.sub(lambda match: places[match[1]], argument) for argument in kernel.spec.argv]
    return [sys.executable if command[0] in _THIS_PYTHON else command[0], *command[1:]]


def _unseen(kernel: LocalKernel, view: View) -> Iterator[str]:
    """Yield what the command names and the kernel would not see: scripts of a kernel are anywhere."""
    seen = [os.path.realpath(path) for path in (*view.read_only, *view.writable.values())]
    for argument in command_of(kernel)[1:]:
        if os.path.isabs(argument) and os.path.exists(argument):
            real = Path(os.path.realpath(argument))
            if not any(real.is_relative_to(path) for path in seen):
                yield (
                    f"the kernel will not see {argument}, which its command names; if it needs that, repeat this with "
                    f"--replace --read-only {argument}, or the directory that it is in"
                )


def _document(kernel: LocalKernel, wanted: Wanted) -> dict[str, Any]:
    """Return what the new ``kernel.json`` says."""
    assert kernel.spec is not None
    document = kernel.as_json()
    stanza = {"provisioner_name": PROVISIONERS[wanted.level], "config": dict(wanted.config)}
    display_name = kernel.spec.display_name or kernel.name
    return document | {
        # What is named in the original's directory was copied with it, and nothing else of that will be seen.
        "argv": [argument.replace(f"{kernel.directory}{os.sep}", "{resource_dir}/") for argument in kernel.spec.argv],
        "display_name": wanted.display_name or f"{display_name} ({_ADJECTIVES[wanted.level]})",
        "metadata": {**kernel.spec.metadata, "kernel_provisioner": stanza},
    }


def install_like(kernel: LocalKernel, place: Place, document: Mapping[str, Any]) -> None:
    """Write a kernelspec with what is beside another one's ``kernel.json``; raises `UsageError`."""
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory, place.destination.name)
        # Its logos and scripts; first, since the original may be what is replaced.
        shutil.copytree(kernel.directory, draft, ignore_dangling_symlinks=True)
        file = draft / "kernel.json"
        file.unlink(missing_ok=True)  # it may be read-only
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        place.install(draft)
