"""Provisioners that start kernels on other machines: recognised by their class, with requirements of their own."""

from __future__ import annotations

import sys

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .isolated_kernelspecs import ISOLATABLE, OUR_PROVISIONERS, provisioner_class

# Their kernels are here, or are known by their level (`files_of`).
_KNOWN = {*ISOLATABLE, *OUR_PROVISIONERS.values()}
_GATEWAY_PROVISIONERS = "gateway_provisioners"


def is_known(provisioner_name: str) -> bool:
    """Return whether a provisioner is Jupyter's local one or this package's: its class need not be loaded."""
    return provisioner_name in _KNOWN


def runs_elsewhere(provisioner_name: str) -> bool:
    """Return whether a provisioner's kernels run on other machines. Imports the provisioner: call it in a thread.

    True for each provisioner that is not derived from Jupyter's local one. One that is not installed starts no kernel.
    """
    if is_known(provisioner_name):
        return False
    kind = _loaded(provisioner_name)
    return kind is not None and not issubclass(kind, LocalProvisioner)


def why_refused(provisioner_name: str) -> str | None:
    """Return why a provisioner must not start kernels as this server is configured, None if it may.

    With a socket timeout, gateway_provisioners 0.5 holds up the event loop for 10 ms at each turn, and takes a kernel
    that does not accept a connection within 10 ms for dead.
    """
    kind = _loaded(provisioner_name)
    if kind is None or kind.__module__.partition(".")[0] != _GATEWAY_PROVISIONERS:
        return None
    settings = sys.modules.get(f"{_GATEWAY_PROVISIONERS}.config_mixin")
    timeout_seconds = getattr(settings, "socket_timeout", 0)  # as it was when the package was imported
    if timeout_seconds == 0:
        return None
    return (
        f"its provisioner {provisioner_name!r} is part of gateway_provisioners, whose socket timeout is "
        f"{timeout_seconds:g} s here. That slows down the whole server, and a kernel counts as dead when its network "
        "is slow or cut for a moment. Start the server with GP_SOCKET_TIMEOUT=0 in its environment"
    )


def _loaded(provisioner_name: str) -> type | None:
    try:
        kind: type | None = provisioner_class(provisioner_name)
    except ImportError:  # the start of a kernel fails, and says why
        return None
    return kind
