"""Kernels that are forked from a process that has imported everything already: milliseconds to a fresh one."""

from .forkserver_provisioner import ForkServerProvisioner

__all__ = ["ForkServerProvisioner"]
