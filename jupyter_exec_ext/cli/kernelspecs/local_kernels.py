"""The kernelspecs and provisioners of this machine and environment, as a Jupyter application here would find them."""

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

#: What starts kernels as processes like any other, which can be given isolation.
PLAIN = "local-provisioner"
#: What starts kernels without isolation that a server can start with some instead.
ISOLATABLE = (PLAIN, "forkserver-provisioner")
#: What isolates kernels on this machine, by the level that they then have.
PROVISIONERS = {"sandbox": "sandbox-provisioner", "landlock": "landlock-provisioner"}


@dataclass(frozen=True)
class LocalKernel:
    """An installed kernelspec.

    Parameters
    ----------
    directory : str
        Where its ``kernel.json`` and its logos are.
    spec : KernelSpec or None
        None if it cannot be read.
    problem : str
        Why it cannot be read.
    """

    name: str
    directory: str
    spec: KernelSpec | None
    problem: str = ""

    @property
    def provisioner(self) -> str:
        """The name of what starts its kernels."""
        factory = KernelProvisionerFactory.instance()
        return str(self._stanza.get("provisioner_name") or factory.default_provisioner_name)

    @cached_property
    def is_startable(self) -> bool:
        """Whether what starts its kernels is installed; Jupyter does not list it otherwise."""
        return self.provisioner in KernelProvisionerFactory.instance().provisioners

    @property
    def has_host_network(self) -> bool:
        """Whether it asks for this machine's network, with which it is not isolated."""
        config = self._stanza.get("config")
        return isinstance(config, dict) and config.get("network", "none") != "none"

    @property
    def level(self) -> str:
        """The isolation of its kernels, as far as its provisioner says so; a server's configuration can say more."""
        if self.spec is None or self.has_host_network:
            return "none"
        return str(getattr(provisioner_class(self.provisioner), "level", "none"))

    @property
    def _stanza(self) -> dict[str, Any]:
        found = None if self.spec is None else self.spec.metadata.get("kernel_provisioner")
        return found if isinstance(found, dict) else {}

    def as_json(self) -> dict[str, Any]:
        """Return what its ``kernel.json`` says, fields that Jupyter does not know included."""
        file = Path(self.directory, "kernel.json")
        if file.is_file():
            return dict(json.loads(file.read_text(encoding="utf-8")))
        assert self.spec is not None
        return dict(self.spec.to_dict())  # ipykernel's own, which is found without such a file


def installed(manager: KernelSpecManager | None = None) -> list[LocalKernel]:
    """Return all kernelspecs, by their names; also those that Jupyter does not list since they cannot be used."""
    manager = KernelSpecManager() if manager is None else manager
    return [_read(manager, name, directory) for name, directory in sorted(manager.find_kernel_specs().items())]


def _read(manager: KernelSpecManager, name: str, directory: str) -> LocalKernel:
    try:
        try:
            spec = manager.get_kernel_spec(name)
        except NoSuchKernel:  # its provisioner is not installed
            spec = KernelSpec.from_resource_dir(directory)
    except (OSError, ValueError, TypeError, AttributeError, TraitError) as error:
        return LocalKernel(name, directory, None, str(error))
    return LocalKernel(name, directory, spec)


def provisioner_class(name: str) -> Any:
    """Return what starts kernels under a name; None if nothing of that name is installed, or it cannot be loaded."""
    entry_point = KernelProvisionerFactory.instance().provisioners.get(name)
    try:
        return None if entry_point is None else entry_point.load()
    except (ImportError, AttributeError):
        return None


def why_unavailable(level: str) -> str | None:
    """Return why kernels of this machine cannot have a level of isolation, with the remedy; None if they can."""
    kind = provisioner_class(PROVISIONERS[level])
    if kind is None:
        return f"the provisioner {PROVISIONERS[level]!r} is not installed; install jupyter_exec_ext again"
    problem: str | None = kind.unavailable()
    return problem


def join_names(kernels: Sequence[LocalKernel]) -> str:
    """Return names for a sentence."""
    return ", ".join(kernel.name for kernel in kernels) or "none"
