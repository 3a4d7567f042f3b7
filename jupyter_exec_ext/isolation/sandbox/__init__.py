"""Kernels in a sandbox made by bubblewrap: they see their working directory, the system's programs, nothing else."""

from ..common.isolation_support import IsolationUnavailableError
from .sandbox_provisioner import SandboxProvisioner

__all__ = ["IsolationUnavailableError", "SandboxProvisioner"]
