"""Under Landlock a kernel has no network: no attempt gets data out, though a proxy without rules is there."""

from __future__ import annotations

import inspect
import json
import os
from typing import Any

import pytest

from tests.containment import network_probes
from tests.containment.isolated import IsolatedKernel
from tests.containment.network_probes import ATTEMPTS
from tests.containment.network_world import NetworkWorld
from tests.containment.plain import NOBODY
from tests.containment.test_landlock import PROVISIONER
from tests.containment.world import World

pytestmark = [pytest.mark.needs("Landlock"), pytest.mark.timeout(300)]


def test_no_attempt_gets_data_out_under_landlock() -> None:
    printed: list[str] = []

    def keep(message: dict[str, Any]) -> None:
        if message["content"].get("name") == "stdout":
            printed.append(message["content"]["text"])

    with NetworkWorld() as outside, World(user=NOBODY if os.geteuid() == 0 else None) as world:
        marks = network_probes.make_marks(ATTEMPTS, outside.facts)
        facts = {**outside.facts, "proxy": outside.start_open_proxy(), "proxy_pid": os.getpid()}
        code = network_probes.LOAD.format(source=inspect.getsource(network_probes))
        with IsolatedKernel(world, PROVISIONER) as kernel:
            code += f"print(json.dumps(probes.run({facts!r}, {marks!r})))"
            kernel.start().execute_interactive(code, timeout=120, output_hook=keep)
    assert json.loads("".join(printed)) == {"got": [], "mistakes": []}
    assert outside.arrived(marks) == set()
    print(f"{len(marks)} attempts, none of them went through")
