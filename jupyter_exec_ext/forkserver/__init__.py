"""Fork server: kernels forked from a process that has imported everything, in milliseconds."""

from .forkserver_provisioner import ForkServerProvisioner

__all__ = ["ForkServerProvisioner"]
