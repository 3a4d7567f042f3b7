"""Kernels that Landlock and a filter of system calls hold, for machines on which no sandbox can be made."""

from .landlock_provisioner import LandlockProvisioner

__all__ = ["LandlockProvisioner"]
