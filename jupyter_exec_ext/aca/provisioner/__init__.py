"""Azure Container Apps sessions as kernels: the kernel side is here, the code runs in the session."""

from .aca_provisioner import ACAProvisioner

__all__ = ["ACAProvisioner"]
