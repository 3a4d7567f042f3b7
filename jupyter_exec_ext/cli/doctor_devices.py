"""Doctor's check of devices: the GPUs of this machine, and whether kernels in a sandbox could use them."""

from __future__ import annotations

import grp
import os
import subprocess
from collections.abc import Iterator
from glob import glob

from ..isolation.common.grant_checks import device_nodes
from ..isolation.common.isolation_support import IsolationUnavailableError
from ..isolation.common.visible_files import VisibleFilesError
from ..isolation.sandbox.bubblewrap import NAMESPACES, NO_NETWORK, ready_tools
from .doctor_command import Finding

_TRIAL_SECONDS = 20.0
_NO_GPU = (
    "install the GPU's driver; in a container pass the devices on (docker run --gpus all, or --device /dev/dri); "
    "sessions need none of it unless a policy has 'devices'"
)
_NO_UVM = "load the module nvidia_uvm, which CUDA needs (nvidia-modprobe -u -c=0), before the server starts"
_ADDRESS_SPACE = (
    "set c.IsolatedProvisioner.max_memory_bytes = 0, and leave max_memory_bytes of the policy unset; limit the "
    "memory of the whole server instead (systemd's MemoryMax)"
)


def check_devices() -> Iterator[Finding]:
    """Report the GPUs of this machine, and whether a sandbox could use each of them."""
    gpus = [f"nvidia:{path.removeprefix('/dev/nvidia')}" for path in sorted(glob("/dev/nvidia[0-9]*"))]
    has_nvidia = bool(gpus)
    gpus += ["dri"] if os.path.isdir("/dev/dri") else []
    if not gpus:
        yield Finding("there is no GPU: neither /dev/nvidia0 nor /dev/dri", _NO_GPU, fails=False)
        return
    try:
        bwrap = ready_tools().bwrap
    except IsolationUnavailableError as error:
        yield Finding(f"there are GPUs ({', '.join(gpus)}), and no sandbox that could use them", str(error))
        return
    for gpu in gpus:
        yield from _check_device(gpu, bwrap)
    if has_nvidia and not os.path.exists("/dev/nvidia-uvm"):
        yield Finding("/dev/nvidia-uvm is missing", _NO_UVM)
    if has_nvidia:
        what = "CUDA reserves more address space than the machine has memory, which the limits of sandboxes refuse"
        yield Finding(what, _ADDRESS_SPACE, fails=False)


def _check_device(device: str, bwrap: str) -> Iterator[Finding]:
    try:
        nodes = list(device_nodes(device))
    except VisibleFilesError as error:
        yield Finding(str(error), _NO_GPU)
        return
    for node in nodes:
        if not os.access(node, os.R_OK | os.W_OK):
            group = _group_of(node)
            yield Finding(
                f"this user may not use {node} of the device {device}",
                f"add the server's user to the group {group} (usermod -aG {group} USER), and log in again",
            )
            return
    seen = _seen_in_sandbox(bwrap, nodes)
    if seen == sorted(nodes):
        yield Finding(f"a sandbox can use the device {device}: {', '.join(nodes)}")
    else:
        missing = ", ".join(sorted(set(nodes) - set(seen)))
        remedy = "run the server outside of a container that masks devices, or pass them on to it (--device)"
        yield Finding(f"a sandbox cannot open {missing} of the device {device}", remedy)


def _seen_in_sandbox(bwrap: str, nodes: list[str]) -> list[str]:
    """Return the nodes that a process in a sandbox may read and write."""
    command = [bwrap, *NAMESPACES, NO_NETWORK, "--ro-bind", "/", "/", "--dev", "/dev"]
    for node in nodes:
        command += ["--dev-bind", node, node]
    script = 'for node in "$@"; do test -r "$node" && test -w "$node" && echo "$node"; done; true'
    done = subprocess.run(
        [*command, "--remount-ro", "/dev", "--", "/bin/sh", "-c", script, "sh", *nodes],
        capture_output=True,
        text=True,
        timeout=_TRIAL_SECONDS,
        check=False,
    )
    return sorted(done.stdout.split())


def _group_of(path: str) -> str:
    number = os.stat(path).st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:  # a group of the machine that a container does not know
        return str(number)
