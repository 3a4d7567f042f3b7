"""The provisioner: a kernel in a sandbox, for any Jupyter application."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from traitlets import Bool, Enum, Integer

from ..common.isolated_provisioner import IsolatedProvisioner
from ..common.isolation_support import IsolationUnavailableError
from ..common.launch_request import WORK_PLACES, Launch
from .bubblewrap_arguments import work_place
from .sandbox_launch import LaunchedSandbox, launch
from .sandbox_support import ready_tools


class SandboxProvisioner(IsolatedProvisioner):
    """Runs a kernel in a sandbox made by bubblewrap; configured as ``c.SandboxProvisioner`` in any Jupyter application.

    A kernelspec may set `read_only`, `writable`, `env`, `working_directory` and `network` in its provisioner's
    ``config``.
    """

    level = "sandbox"
    _work_place = WORK_PLACES[0]
    of_kernelspec: ClassVar[tuple[str, ...]] = (*IsolatedProvisioner.of_kernelspec, "network")

    network = Enum(
        ("none", "host"),
        default_value="none",
        help="'host' gives kernels this machine's network, its loopback included.",
    )
    allow_host_network = Bool(
        False,
        help="Whether a kernelspec may ask for the network of this machine. Such a kernel reaches the server itself, "
        "and counts as one without isolation.",
    ).tag(config=True)
    max_tmp_bytes = Integer(
        512 * 1024**2, help="What each of /tmp, the home directory and /dev/shm may hold. It is memory."
    ).tag(config=True)

    @classmethod
    def require(cls) -> None:
        """Find out whether kernels can be sandboxed on this machine; raises `IsolationUnavailableError`."""
        ready_tools()

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare a launch: find out whether there can be a sandbox, and choose where its sockets are.

        Raises
        ------
        IsolationUnavailableError
        """
        if self.network == "host" and not self.allow_host_network:
            raise IsolationUnavailableError(
                "host_network",
                "this kernelspec asks for the machine's network, which is no isolation; the administrator can allow it "
                "(SandboxProvisioner.allow_host_network)",
            )
        return await super().pre_launch(**kwargs)

    def launch_isolated(self, what: Launch) -> LaunchedSandbox:
        """Start a sandbox, and return when its kernel is inside."""
        limits = replace(what.limits, tmp_bytes=self.max_tmp_bytes)
        view = what.view()
        self._work_place = work_place(view)
        what = replace(what, view=lambda: view)
        return launch(replace(what, limits=limits, host_network=self.network == "host"), self.log)

    def resolve_path(self, path: str) -> str | None:
        """Return where a file of the kernel's working directory is outside."""
        inside = os.path.normpath(os.path.join(self._work_place, path))
        if not self._work_directory or not inside.startswith(self._work_place + "/"):
            return None
        outside = Path(self._work_directory, os.path.relpath(inside, self._work_place))
        return str(outside) if outside.exists() else None
