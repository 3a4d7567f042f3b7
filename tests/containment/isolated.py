"""Tries all probes on a kernel that a provisioner isolates, as a program of its own: so it can be any user's.

python -m tests.containment.isolated PROVISIONER    prints what was found, as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.containment.plain import READY_SECONDS, as_user
from tests.containment.runner import run_probes
from tests.containment.world import World

_SECONDS = 900


def probe_as(user: int, provisioner: str) -> dict[str, Any]:
    """Return what became of each probe in a kernel of a user: ``open``, ``errors`` and ``notes``."""
    tests = Path(__file__).parent.parent.parent
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)  # somebody else's to use
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        done = subprocess.run(
            as_user([sys.executable, "-m", __name__, provisioner], user),
            cwd=tests,
            env={**kept, "HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            timeout=_SECONDS,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class IsolatedKernel:
    """A kernel started by a provisioner, with the world's environment."""

    def __init__(self, provisioner: str, world: World) -> None:
        self._stanza = {"kernel_provisioner": {"provisioner_name": provisioner, "config": {}}}
        self._world = world
        self._manager: KernelManager | None = None
        self._client: BlockingKernelClient | None = None

    def start(self) -> BlockingKernelClient:
        """Start it anew, and return a client that it has answered."""
        self.stop()
        manager = self._manager = KernelManager(kernel_name="python3")
        spec = manager.kernel_spec
        assert spec is not None
        spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.metadata = {**spec.metadata, **self._stanza}
        manager.start_kernel(cwd=str(self._world.work), env=dict(os.environ))
        client = self._client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=READY_SECONDS)
        return client

    def stop(self) -> None:
        """End it, and all that it has started."""
        if self._client is not None:
            self._client.stop_channels()
        if self._manager is not None:
            self._manager.shutdown_kernel(now=True)
        self._client = self._manager = None


def main() -> None:
    """Try all probes, and print what was found."""
    with World() as world:
        kernel = IsolatedKernel(sys.argv[1], world)
        try:
            found = run_probes(kernel.start(), world, kernel.start)
        finally:
            kernel.stop()
    told = {"tried": sorted(found), "open": found.open, "errors": found.errors, "notes": found.notes}
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main()
