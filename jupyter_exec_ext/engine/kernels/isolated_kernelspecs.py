"""Isolated kernels: what starts them, whether that works here, and kernelspecs that ask for it.

The provisioners that isolate kernels are parts of their own, which any Jupyter application can use; here they are known
by their names alone. A kernelspec names its provisioner. So for each kernelspec whose kernels run on this machine there
is another one that is the same but for that, under a name that no installed kernelspec can have.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from ...errors import IsolationRequired

#: What starts the kernels of a level, for kernelspecs that start plain ones.
PROVISIONERS = {"landlock": "landlock-provisioner", "sandbox": "sandbox-provisioner"}
#: What starts kernels elsewhere; a kernelspec of its own says where.
REMOTE_PROVISIONERS = {"remote": "aca-provisioner"}
OUR_PROVISIONERS = {**PROVISIONERS, **REMOTE_PROVISIONERS}
PLAIN = "local-provisioner"
#: What starts kernels without isolation that can be started with some instead.
ISOLATABLE = (PLAIN, "forkserver-provisioner")
_SEPARATOR = "+"


def isolated_name(kernel_name: str, level: str) -> str:
    """Return the name of the kernelspec that is like `kernel_name`, and isolated."""
    return f"{kernel_name}{_SEPARATOR}{level}"


def plain_name(kernel_name: str) -> str:
    """Return the name of the kernelspec that an isolated one was made from, or the name as it is."""
    name, separator, level = kernel_name.rpartition(_SEPARATOR)
    return name if separator and level in PROVISIONERS else kernel_name


class IsolatedKernelSpecs(KernelSpecManager):
    """A host's kernelspecs, and their isolated likes; for what starts kernels, not to be listed.

    Parameters
    ----------
    specs : KernelSpecManager
        The host's.
    """

    def __init__(self, specs: KernelSpecManager) -> None:
        super().__init__(parent=specs.parent)
        self._specs = specs

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return a kernelspec by its name; raises `NoSuchKernel`."""
        name = plain_name(kernel_name)
        spec: KernelSpec = self._specs.get_kernel_spec(name)
        if name == kernel_name:
            return spec
        level = kernel_name.rpartition(_SEPARATOR)[2]
        spec = copy.copy(spec)
        stanza = {"provisioner_name": PROVISIONERS[level], "config": {}}
        spec.metadata = {**(spec.metadata or {}), "kernel_provisioner": stanza}
        return spec

    def find_kernel_specs(self) -> dict[str, str]:
        """Return the directories of the installed kernelspecs."""
        found: dict[str, str] = self._specs.find_kernel_specs()
        return found

    def get_all_specs(self) -> dict[str, Any]:
        """Return the installed kernelspecs."""
        found: dict[str, Any] = self._specs.get_all_specs()
        return found


def provisioner_class(name: str) -> Any:
    """Return what starts kernels under a name; None if nothing of that name is installed."""
    factory = KernelProvisionerFactory.instance()
    entry_point = factory.provisioners.get(name)
    return None if entry_point is None else entry_point.load()


def level_by_name(provisioner_name: str) -> str | None:
    """Return the isolation that a provisioner of ours gives; None for one of another package."""
    return next((level for level, name in OUR_PROVISIONERS.items() if name == provisioner_name), None)


async def why_unavailable(level: str) -> str | None:
    """Return why kernels cannot have a level of isolation here; None if they can."""
    name = OUR_PROVISIONERS[level]
    kind = provisioner_class(name)
    if kind is None:
        return f"the provisioner {name!r} is not installed; install jupyter_exec_ext again"
    if getattr(kind, "level", None) != level:
        return f"the provisioner {name!r} is another package's ({kind.__module__}), which isolates nothing; remove that"
    problem: str | None = await asyncio.to_thread(kind.unavailable)
    return problem


def sweep() -> None:
    """End what isolated kernels of servers that were killed have left behind."""
    for level, name in PROVISIONERS.items():
        kind = provisioner_class(name)
        if getattr(kind, "level", None) == level:
            kind.sweep()


def require_level(provisioner: Any, level: str) -> None:
    """See to it that what was started is what was asked for; raises `IsolationRequired`."""
    if getattr(provisioner, "level", "none") != level:
        raise IsolationRequired(f"the kernel was not started with the isolation {level!r}; this host starts its own")
