"""A program for `test_fail_closed`: how kernels are refused, by a provisioner and by a kernel manager."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.isolation.sandbox import SandboxProvisioner
from tests.support.sandbox_leftovers import Watch

started: list[str] = []


def note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"):
        started.append(Path(str(arguments[0])).name)


async def error_of(what: Any) -> dict[str, str]:
    try:
        await what
    except Exception as error:
        return {"error": type(error).__name__, "reason": getattr(error, "reason", ""), "message": str(error)}
    return {"error": "none"}


async def main(home: Path) -> None:
    watch = Watch()
    sys.addaudithook(note)
    manager = AsyncKernelManager(kernel_name="boxed", connection_file=str(home / "kernel.json"))
    provisioner = SandboxProvisioner(kernel_id="0", kernel_spec=KernelSpec(argv=["true"]), parent=manager)
    found = {
        "provisioner": await error_of(provisioner.pre_launch(env={})),
        "manager": await error_of(manager.start_kernel(cwd=str(home / "work"))),
        "unavailable": SandboxProvisioner.unavailable(),
        "started": started,
        "left": {} if sys.platform != "linux" else watch.left(),
    }
    print(json.dumps(found))


asyncio.run(main(Path(sys.argv[1])))
