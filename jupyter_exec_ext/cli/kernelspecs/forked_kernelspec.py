"""Kernelspecs like installed ones, whose kernels are forked: what is checked of them, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_client.kernelspec import KernelSpecManager

from ...forkserver.forkable_command import NotForkableError, parsed
from ..server_choice import UsageError
from .isolated_kernelspec import command_of, install_like, origin_of
from .kernelspec_place import Place, Written, checked_name
from .local_kernels import installed, provisioner_class

PROVISIONER = "forkserver-provisioner"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class WantedForks:
    """A kernelspec to be written.

    Parameters
    ----------
    preload : sequence of str
        Modules that are imported before kernels are forked.
    name, display_name, prefix, replace
        As in `isolated_kernelspec.Wanted`.
    """

    origin: str
    preload: Sequence[str] = ()
    name: str = ""
    display_name: str = ""
    prefix: str | None = None
    replace: bool = False


def write(wanted: WantedForks) -> Written:
    """Write a kernelspec, after everything about it was checked.

    Raises
    ------
    UsageError
        Before anything was written; or where it cannot be written.
    """
    if provisioner_class(PROVISIONER) is None:
        raise UsageError(
            f"the provisioner {PROVISIONER!r} is not installed here, so Jupyter could not start such kernels; install "
            "jupyter_exec_ext again"
        )
    for module in wanted.preload:
        if not _MODULE.fullmatch(module):
            raise UsageError(f"--preload {module!r} cannot be used: it takes names of modules, such as numpy")
    manager = KernelSpecManager()
    kernels = installed(manager)
    kernel = origin_of(wanted.origin, kernels, "forked")
    try:
        parsed([part.replace("{connection_file}", "kernel.json") for part in command_of(kernel)])
    except NotForkableError as error:
        raise UsageError(f"the kernels of {kernel.name!r} cannot be forked: {error}") from error
    place = Place(manager, checked_name(wanted.name or f"{kernel.name}-fork"), wanted.prefix)
    if not wanted.replace:
        place.require_free(kernels)
    document = kernel.as_json()
    stanza = {"provisioner_name": PROVISIONER, "config": {"preload": list(wanted.preload)} if wanted.preload else {}}
    document["metadata"] = {**(document.get("metadata") or {}), "kernel_provisioner": stanza}
    document["display_name"] = wanted.display_name or f"{document['display_name']} (forked)"
    install_like(kernel, place, document)
    return Written(place.destination.name, document["display_name"], str(place.destination), list(place.doubts()))
