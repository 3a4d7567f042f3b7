"""Where a new kernelspec is written, whatever it says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from ..server_choice import UsageError
from .local_kernels import LocalKernel

_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*")  # Jupyter's, without ".." and what looks like an option


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


def checked_name(name: str) -> str:
    """Return a name as Jupyter reads it; raises `UsageError`."""
    name = name.lower()
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} cannot be used: use letters, digits, . _ -, and begin with none of . -")
    return name


class Place:
    """Where one kernelspec goes.

    Parameters
    ----------
    prefix : str or None
        The installation it becomes a part of; None for the user's own kernelspecs.
    """

    def __init__(self, manager: KernelSpecManager, name: str, prefix: str | None) -> None:
        self._manager = manager
        self._prefix = prefix
        self._name = name
        self._directory = (
            Path(manager.user_kernel_dir) if prefix is None else Path(os.path.abspath(prefix), "share/jupyter/kernels")
        )
        self.destination = self._directory / name

    def require_free(self, kernels: Sequence[LocalKernel]) -> None:
        """See to it that there is no kernelspec of that name; raises `UsageError`."""
        there = next((other.directory for other in kernels if other.name == self._name), None)
        if there or os.path.lexists(self.destination):
            raise UsageError(
                f"there is a kernelspec {self._name!r} already ({there or self.destination}); --replace replaces it, "
                "and --name gives the new one another name"
            )

    def install(self, draft: Path) -> None:
        """Copy a directory there; raises `UsageError`."""
        try:
            self._manager.install_kernel_spec(str(draft), self._name, user=self._prefix is None, prefix=self._prefix)
        except OSError as error:
            raise UsageError(
                f"{self.destination} cannot be written: {error}; --user, --sys-prefix and --prefix DIR say where else "
                "to"
            ) from error

    def doubts(self) -> Iterator[str]:
        """Yield why Jupyter may not find what was written."""
        found = self._manager.find_kernel_specs().get(self._name)
        if str(self._directory) not in self._manager.kernel_dirs:
            yield (
                f"Jupyter does not look for kernelspecs in {self._directory}; a server finds this one if its "
                f"JUPYTER_PATH has {self._directory.parent}"
            )
        elif found is not None and not os.path.samefile(found, self.destination):
            yield f"another kernelspec of this name comes before it ({found}); remove that one, or choose a --name"
