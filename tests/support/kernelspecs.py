"""Kernelspecs and provisioners of a test's own, for a host that is started with them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def add_kernelspec(home: Path, name: str, provisioner: str, python: str | Path = sys.executable) -> None:
    """Install a kernelspec for the host below `home`; its kernels are of this Python, or of the one that is named."""
    directory = home / "jupyter_data_dir" / "kernels" / name
    directory.mkdir(parents=True)
    spec = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": provisioner}},
    }
    (directory / "kernel.json").write_text(json.dumps(spec))


LOCAL = "jupyter_client.provisioning.local_provisioner:LocalProvisioner"


def with_provisioner(
    home: Path, *names: str, kind: str = LOCAL, package: str = "provisioner-of-tests"
) -> dict[str, str]:
    """Return an environment in which a provisioner, the local one if none is named, is known by these names."""
    plugins = home / "plugins"
    info = plugins / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    entries = "".join(f"{name} = {kind}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[jupyter_client.kernel_provisioners]\n{entries}")
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(plugins), *([known] if known else [])])}
