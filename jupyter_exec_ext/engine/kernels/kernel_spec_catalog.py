"""Kernelspecs of a host: found by name, and what is remembered of those that were found."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_client.multikernelmanager import MultiKernelManager
from traitlets import TraitError

from ...errors import KernelSpecNotFound, KernelStartFailed
from ...models import KernelSpecInfo
from ...system.resources import is_out_of_resources, make_resources_error
from .death_report import KernelStderr
from .provisioners import (
    ISOLATABLE,
    has_host_network,
    is_known,
    plain_name,
    provisioner_name,
    runs_elsewhere,
    spec_info,
    why_refused,
)

# jupyter_client raises these for a kernelspec that is no text, no JSON, or has parts of other types.
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, TraitError)


class KernelSpecCatalog:
    """Kernelspecs of a host.

    Parameters
    ----------
    manager : MultiKernelManager
        The host's.
    kernel_spec_manager : KernelSpecManager
        The host's.
    forced_kernel_name : str
        The kernelspec the host uses whatever is asked for; empty if it has none.
    """

    def __init__(
        self, manager: MultiKernelManager, kernel_spec_manager: KernelSpecManager, *, forced_kernel_name: str = ""
    ) -> None:
        self._manager = manager
        self._specs = kernel_spec_manager
        self._forced = forced_kernel_name
        self._found: dict[str, tuple[str, str]] = {}  # digests of kernelspecs' content, and their programs
        self._elsewhere: dict[str, bool] = {}

    @property
    def default_kernel_name(self) -> str:
        """The kernelspec used when a caller names none."""
        return self._forced or str(self._manager.default_kernel_name)

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        """Return the installed kernelspecs; those that cannot be read are left out."""
        found = await asyncio.to_thread(self._specs.get_all_specs)
        return [
            KernelSpecInfo(
                name,
                str(item["spec"].get("display_name", name)),
                str(item["spec"].get("language", "")),
                provisioner_name(item["spec"].get("metadata")),
                host_network=has_host_network(item["spec"].get("metadata")),
            )
            for name, item in sorted(found.items())
        ]

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        """Return one kernelspec.

        Raises
        ------
        KernelSpecNotFound
            Naming those there are.
        KernelStartFailed, OutOfResources
            If it cannot be read.
        """
        name = self._forced or kernel_name
        try:
            if not name.isprintable():  # it would get into the host's log as it is
                raise NoSuchKernel(name)
            spec = await asyncio.to_thread(self._specs.get_kernel_spec, name)
        except NoSuchKernel:
            names = ", ".join(spec.name for spec in await self.kernelspecs()) or "none"
            raise KernelSpecNotFound(f"no kernelspec {name!r} is installed here; there are: {names}") from None
        except _UNREADABLE as error:
            if is_out_of_resources(error):
                raise make_resources_error(error) from error
            directory = self._specs.find_kernel_specs().get(name.lower(), "")
            file = os.path.join(directory, "kernel.json")
            raise KernelStartFailed(f"the kernelspec {name!r} cannot be read: {file}: {error}") from error
        content = repr((spec.to_dict(), spec.resource_dir))  # with its environment, in which there may be secrets
        self._found[plain_name(name)] = hashlib.sha256(content.encode()).hexdigest(), (spec.argv or [""])[0]
        info = spec_info(name, spec)
        self._elsewhere[info.name] = not is_known(info.provisioner) and await asyncio.to_thread(
            runs_elsewhere, info.provisioner
        )
        return info

    def version_of(self, kernel_name: str) -> str:
        """Return what tells one content of a kernelspec from another, as it was when it was last found."""
        return self._found.get(kernel_name, ("", ""))[0]

    def program_of(self, kernel_name: str) -> str:
        """Return the program in a kernelspec's command, as it was when it was last found; empty for an unknown one."""
        return self._found.get(kernel_name, ("", ""))[1]

    def runs_elsewhere(self, kernel_name: str) -> bool:
        """Return whether a kernelspec's kernels run on other machines, as it was when it was last found."""
        if kernel_name not in self._elsewhere:
            try:
                metadata = self._specs.get_kernel_spec(plain_name(kernel_name)).metadata
            except (NoSuchKernel, *_UNREADABLE):
                return False
            self._elsewhere[kernel_name] = runs_elsewhere(provisioner_name(metadata))
        return self._elsewhere[kernel_name]

    async def takes_stderr(self, kernel_name: str) -> bool:
        """Return whether a kernelspec's provisioner takes a descriptor for the kernel's standard error.

        Raises
        ------
        KernelStartFailed
            If the provisioner cannot work as this server is configured.
        """
        info = await self.find(kernel_name)
        why = why_refused(info.provisioner) if self._elsewhere.get(info.name) else None
        if why is not None:
            raise KernelStartFailed(f"kernel {kernel_name!r} is not started: {why}")
        return KernelStderr.is_possible() and info.provisioner in ISOLATABLE
