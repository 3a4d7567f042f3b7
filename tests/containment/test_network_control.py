"""The control run of the network's attempts: where no rules hold, they arrive."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.containment import network_probes
from tests.containment.network_probes import ATTEMPTS
from tests.containment.network_world import NetworkWorld
from tests.support.full import only_in_full


@only_in_full
@pytest.mark.skipif(sys.platform != "linux", reason="the attempts are on Linux")
def test_attempts_arrive_where_no_rules_hold() -> None:
    names = [name for name, each in ATTEMPTS.items() if each.is_open_in_control]
    with NetworkWorld() as world:
        marks = network_probes.make_marks(names, world.facts)
        given = {"facts": {**world.facts, "proxy": world.start_open_proxy()}, "marks": marks}
        command = [sys.executable, network_probes.__file__]
        run = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=True)
        arrived = world.wait_for(marks)
    assert json.loads(run.stdout)["mistakes"] == []
    assert marks.keys() - arrived == set()
    print(f"{len(marks)} attempts arrived without rules")
