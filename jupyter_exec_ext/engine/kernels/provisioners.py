"""Provisioners of kernels: their names in kernelspecs, the isolation they give, and where their kernels run."""

from __future__ import annotations

import asyncio
import copy
import sys
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ...models import KernelSpecInfo

#: The provisioner of each level of isolation, for kernelspecs that start plain kernels.
PROVISIONERS = {"landlock": "landlock-provisioner", "sandbox": "sandbox-provisioner"}
#: Provisioners of kernels elsewhere; their own kernelspecs name the place.
REMOTE_PROVISIONERS = {"remote": "aca-provisioner"}
OUR_PROVISIONERS = {**PROVISIONERS, **REMOTE_PROVISIONERS}
PLAIN = "local-provisioner"
#: Provisioners of kernels without isolation, which can be started with some instead.
ISOLATABLE = (PLAIN, "forkserver-provisioner")
# jupyter_client installs no kernelspec with this character in its name, so the names do not clash.
_SEPARATOR = "+"


def isolated_name(kernel_name: str, level: str) -> str:
    """Return the name of the kernelspec that is like `kernel_name`, and isolated."""
    return f"{kernel_name}{_SEPARATOR}{level}"


def plain_name(kernel_name: str) -> str:
    """Return the name of the kernelspec that an isolated one was made from, or the name as it is."""
    name, separator, level = kernel_name.rpartition(_SEPARATOR)
    return name if separator and level in PROVISIONERS else kernel_name


class IsolatedKernelSpecs(KernelSpecManager):
    """A host's kernelspecs and, for starts alone, isolated variants of them, which are not listed.

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
        # The copy is shallow. A change in place would isolate the host's own kernelspec, too.
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


# Their kernels are here, or are known by their level (`files_of`).
_KNOWN = {*ISOLATABLE, *OUR_PROVISIONERS.values()}
_GATEWAY_PROVISIONERS = "gateway_provisioners"


def is_known(provisioner_name: str) -> bool:
    """Return whether a provisioner is Jupyter's local one or this package's: its class need not be loaded."""
    return provisioner_name in _KNOWN


def runs_elsewhere(provisioner_name: str) -> bool:
    """Return whether a provisioner's kernels run on other machines. Imports the provisioner: call it in a thread.

    True for each provisioner that is not derived from Jupyter's local one. One that is not installed starts no kernel.
    """
    if is_known(provisioner_name):
        return False
    kind = _loaded(provisioner_name)
    return kind is not None and not issubclass(kind, LocalProvisioner)


def why_refused(provisioner_name: str) -> str | None:
    """Return why a provisioner must not start kernels as this server is configured, None if it may.

    With a socket timeout, gateway_provisioners 0.5 holds up the event loop for 10 ms at each turn, and takes a kernel
    that does not accept a connection within 10 ms for dead.
    """
    kind = _loaded(provisioner_name)
    if kind is None or kind.__module__.partition(".")[0] != _GATEWAY_PROVISIONERS:
        return None
    settings = sys.modules.get(f"{_GATEWAY_PROVISIONERS}.config_mixin")
    timeout_seconds = getattr(settings, "socket_timeout", 0)  # as it was when the package was imported
    if timeout_seconds == 0:
        return None
    return (
        f"its provisioner {provisioner_name!r} is part of gateway_provisioners, whose socket timeout is "
        f"{timeout_seconds:g} s here. That slows down the whole server, and a kernel counts as dead when its network "
        "is slow or cut for a moment. Start the server with GP_SOCKET_TIMEOUT=0 in its environment"
    )


def _loaded(provisioner_name: str) -> type | None:
    try:
        kind: type | None = provisioner_class(provisioner_name)
    except ImportError:  # the start of a kernel fails with this error
        return None
    return kind


def spec_info(name: str, spec: KernelSpec) -> KernelSpecInfo:
    """Return what a caller needs to know of a kernelspec."""
    return KernelSpecInfo(
        plain_name(name),
        spec.display_name,
        spec.language,
        provisioner_name(spec.metadata),
        host_network=has_host_network(spec.metadata),
    )


def provisioner_name(metadata: Any) -> str:
    """Return the name of a kernelspec's provisioner, from its metadata."""
    name = _provisioner(metadata).get("provisioner_name")
    return str(name or KernelProvisionerFactory.instance().default_provisioner_name)


def has_host_network(metadata: Any) -> bool:
    """Return whether a kernelspec asks for this machine's network, which leaves nothing of isolation."""
    config = _provisioner(metadata).get("config")
    return isinstance(config, dict) and config.get("network", "none") != "none"


def _provisioner(metadata: Any) -> dict[str, Any]:
    found = metadata.get("kernel_provisioner") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
