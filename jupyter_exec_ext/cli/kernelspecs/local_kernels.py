"""Kernelspecs and provisioners of this machine, as a Jupyter application in this environment finds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from traitlets import TraitError

#: The provisioner of kernels that are plain processes, which can be isolated.
PLAIN = "local-provisioner"
#: Provisioners without isolation whose kernels a server can start isolated instead.
ISOLATABLE = (PLAIN, "forkserver-provisioner")
#: Provisioners that isolate, by their level of isolation.
PROVISIONERS = {"sandbox": "sandbox-provisioner", "landlock": "landlock-provisioner"}


# Without slots: `cached_property` keeps its value in the instance's `__dict__`.
@dataclass(frozen=True)
class LocalKernel:
    """An installed kernelspec.

    Parameters
    ----------
    name : str
        Its name.
    directory : str
        Directory of its ``kernel.json`` and its logos.
    spec : KernelSpec or None
        Its contents; None if it cannot be read.
    problem : str
        The error of reading it.
    """

    name: str
    directory: str
    spec: KernelSpec | None
    problem: str = ""

    @property
    def provisioner(self) -> str:
        """Name of the provisioner of its kernels."""
        factory = KernelProvisionerFactory.instance()
        return str(self._stanza.get("provisioner_name") or factory.default_provisioner_name)

    @cached_property
    def is_startable(self) -> bool:
        """True if its provisioner is installed; Jupyter does not list it otherwise."""
        return self.provisioner in KernelProvisionerFactory.instance().provisioners

    @property
    def has_host_network(self) -> bool:
        """True if its kernels get the host's network, which undoes their isolation."""
        config = self._stanza.get("config")
        return isinstance(config, dict) and config.get("network", "none") != "none"

    @property
    def level(self) -> str:
        """Isolation of its kernels by its provisioner; a server's configuration can add some."""
        if self.spec is None or self.has_host_network:
            return "none"
        return str(getattr(provisioner_class(self.provisioner), "level", "none"))

    @property
    def _stanza(self) -> dict[str, Any]:
        found = None if self.spec is None else self.spec.metadata.get("kernel_provisioner")
        return found if isinstance(found, dict) else {}

    def as_json(self) -> dict[str, Any]:
        """Return its ``kernel.json``, including fields that Jupyter does not know."""
        file = Path(self.directory, "kernel.json")
        if file.is_file():
            return dict(json.loads(file.read_text(encoding="utf-8")))
        assert self.spec is not None
        return dict(self.spec.to_dict())  # ipykernel's own kernelspec has no such file


def installed(manager: KernelSpecManager | None = None) -> list[LocalKernel]:
    """Return all kernelspecs, sorted by name, including unusable ones that Jupyter does not list."""
    manager = KernelSpecManager() if manager is None else manager
    return [_read(manager, name, directory) for name, directory in sorted(manager.find_kernel_specs().items())]


def _read(manager: KernelSpecManager, name: str, directory: str) -> LocalKernel:
    try:
        try:
            spec = manager.get_kernel_spec(name)
        except NoSuchKernel:  # its provisioner is not installed
            spec = KernelSpec.from_resource_dir(directory)
    # People write these files, so a value may be of any type, and traitlets and jupyter_client fail in all these ways.
    except (OSError, ValueError, TypeError, AttributeError, TraitError) as error:
        return LocalKernel(name, directory, None, str(error))
    return LocalKernel(name, directory, spec)


def provisioner_class(name: str) -> Any:
    """Return a provisioner's class; None if it is not installed or cannot be loaded."""
    entry_point = KernelProvisionerFactory.instance().provisioners.get(name)
    try:
        return None if entry_point is None else entry_point.load()
    # A broken package counts as one that is not installed.
    except (ImportError, AttributeError):
        return None


def why_unavailable(level: str) -> str | None:
    """Return the problem, with its remedy, of a level of isolation on this machine; None if it works."""
    kind = provisioner_class(PROVISIONERS[level])
    if kind is None:
        return f"the provisioner {PROVISIONERS[level]!r} is not installed; install jupyter_exec_ext again"
    problem: str | None = kind.unavailable()
    return problem


def join_names(kernels: Sequence[LocalKernel]) -> str:
    """Return the names of kernelspecs as a list for a message."""
    return ", ".join(kernel.name for kernel in kernels) or "none"
