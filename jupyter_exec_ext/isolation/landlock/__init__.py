"""Kernels that are restricted by Landlock and a filter of system calls, where no sandbox can be made."""

from .landlock_provisioner import LandlockProvisioner

__all__ = ["LandlockProvisioner"]
