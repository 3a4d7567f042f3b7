"""Kernelspecs and provisioners of a test's own, for a host that is started with them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def add_kernelspec(home: Path, name: str, provisioner: str) -> None:
    """Install a Python kernelspec for the host below `home`."""
    directory = home / "jupyter_data_dir" / "kernels" / name
    directory.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": provisioner}},
    }
    (directory / "kernel.json").write_text(json.dumps(spec))


def with_provisioner(home: Path, *names: str) -> dict[str, str]:
    """Return an environment in which the local provisioner is known by other names, too."""
    plugins = home / "plugins"
    info = plugins / "provisioner_of_tests-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: provisioner-of-tests\nVersion: 1.0\n")
    entries = [f"{name} = jupyter_client.provisioning.local_provisioner:LocalProvisioner\n" for name in names]
    (info / "entry_points.txt").write_text(f"[jupyter_client.kernel_provisioners]\n{''.join(entries)}")
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(plugins), *([known] if known else [])])}
