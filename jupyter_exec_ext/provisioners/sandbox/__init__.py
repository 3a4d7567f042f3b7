"""Kernels in a sandbox made by bubblewrap: they see their working directory, the system's programs, nothing else."""

from .provisioner import SandboxProvisioner
from .support import IsolationUnavailableError

__all__ = ["IsolationUnavailableError", "SandboxProvisioner"]
