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

from ..provisioners.sandbox.arguments import View
from ..provisioners.sandbox.leftovers import base_directory
from ..provisioners.sandbox.support import IsolationUnavailableError
from ..provisioners.sandbox.view import TooMuchToSeeError, view_of
from .local_kernels import PLAIN, PROVISIONERS, LocalKernel, installed, names_of
from .servers import UsageError

# What a working directory can be beside a path.
WORKING_DIRECTORIES = ("launched", "private")
_ADJECTIVES = {"sandbox": "sandboxed", "landlock": "Landlock"}
_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*")  # Jupyter's, without ".." and what looks like an option
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


@dataclass(frozen=True, slots=True)
class Written:
    """A kernelspec that was written.

    Parameters
    ----------
    doubts : sequence of str
        What might keep it from being used, a sentence each.
    """

    name: str
    display_name: str
    directory: str
    doubts: Sequence[str]


def write(wanted: Wanted) -> Written:
    """Write a kernelspec, after everything about it was checked.

    Raises
    ------
    UsageError
        Before anything was written; or where it cannot be written.
    """
    manager = KernelSpecManager()
    kernels = installed(manager)
    kernel = _origin(wanted, kernels)
    name = _new_name(wanted, kernel)
    kernel_directory = _kernel_directory(manager, wanted.prefix)
    destination = kernel_directory / name
    there = next((other.directory for other in kernels if other.name == name), None)
    if not wanted.replace and (there or os.path.lexists(destination)):
        raise UsageError(
            f"there is a kernelspec {name!r} already ({there or destination}); --replace replaces it, and --name gives "
            "the new one another name"
        )
    doubts = list(_unseen(kernel, _view(kernel, wanted.config)))
    document = _document(kernel, wanted)
    try:
        _install(manager, kernel, document, name, wanted.prefix)
    except OSError as error:
        raise UsageError(
            f"{destination} cannot be written: {error}; --user, --sys-prefix and --prefix DIR say where else to"
        ) from error
    found = manager.find_kernel_specs().get(name)
    if str(kernel_directory) not in manager.kernel_dirs:
        doubts.append(
            f"Jupyter does not look for kernelspecs in {kernel_directory}; a server finds this one if its JUPYTER_PATH "
            f"has {kernel_directory.parent}"
        )
    elif found is not None and not os.path.samefile(found, destination):
        doubts.append(f"another kernelspec of this name comes before it ({found}); remove that one, or choose a --name")
    return Written(name, str(document["display_name"]), str(destination), doubts)


def _origin(wanted: Wanted, kernels: Sequence[LocalKernel]) -> LocalKernel:
    """Return the kernelspec to make one like, if one can be made."""
    usable = [kernel for kernel in kernels if kernel.spec is not None and kernel.provisioner == PLAIN]
    kernel = next((kernel for kernel in kernels if kernel.name == wanted.origin.lower()), None)
    if kernel is None:
        raise UsageError(f"no kernelspec {wanted.origin!r} is installed here; --from can be: {names_of(usable)}")
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
            f"starts itself can be isolated here; --from can be: {names_of(usable)}"
        )
    if not kernel.spec.argv:
        raise UsageError(f"the kernelspec in {kernel.directory} names no command ('argv'); correct it")
    return kernel


def _new_name(wanted: Wanted, kernel: LocalKernel) -> str:
    name = (wanted.name or f"{kernel.name}-{wanted.level}").lower()  # as Jupyter reads names
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} cannot be used: use letters, digits, . _ -, and begin with none of . -")
    return name


def _kernel_directory(manager: KernelSpecManager, prefix: str | None) -> Path:
    return Path(manager.user_kernel_dir) if prefix is None else Path(os.path.abspath(prefix), "share/jupyter/kernels")


def _view(kernel: LocalKernel, config: Mapping[str, Any]) -> View:
    """Return what a kernel would see, if that can be allowed."""
    chosen = config.get("working_directory", WORKING_DIRECTORIES[0])
    try:
        with tempfile.TemporaryDirectory() as empty:
            return view_of(
                _command(kernel),
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


def _command(kernel: LocalKernel) -> list[str]:
    """Return the command of a kernel as Jupyter would run it, but for the connection file."""
    assert kernel.spec is not None
    places = {"resource_dir": kernel.directory, "prefix": sys.prefix}
    command = [_PLACEHOLDER.sub(lambda match: places[match[1]], argument) for argument in kernel.spec.argv]
    return [sys.executable if command[0] in _THIS_PYTHON else command[0], *command[1:]]


def _unseen(kernel: LocalKernel, view: View) -> Iterator[str]:
    """Yield what the command names and the kernel would not see: scripts of a kernel are anywhere."""
    seen = [os.path.realpath(path) for path in (*view.read_only, *view.writable.values())]
    for argument in _command(kernel)[1:]:
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


def _install(
    manager: KernelSpecManager, kernel: LocalKernel, document: Mapping[str, Any], name: str, prefix: str | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory, name)
        # Its logos and scripts; first, since the original may be what is replaced.
        shutil.copytree(kernel.directory, draft, ignore_dangling_symlinks=True)
        file = draft / "kernel.json"
        file.unlink(missing_ok=True)  # it may be read-only
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        manager.install_kernel_spec(str(draft), name, user=prefix is None, prefix=prefix)
