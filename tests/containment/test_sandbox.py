"""In a sandbox no attack has an effect, whether the server runs as root or not."""

from __future__ import annotations

import os

import pytest

from tests.containment.isolated import IsolatedKernel
from tests.containment.plain import NOBODY
from tests.containment.probes import PROBES
from tests.containment.runner import run_probes
from tests.containment.world import World
from tests.support.full import IS_FULL, only_in_full

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.timeout(900)]
PROVISIONER = "jupyter_exec_ext.isolation.sandbox.SandboxProvisioner"
# Who is not root tests as who they are.
USERS = ([NOBODY, 0] if IS_FULL else [NOBODY]) if os.geteuid() == 0 else [None]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("is_restored", [False, pytest.param(True, marks=only_in_full)], ids=["fresh", "restored"])
def test_nothing_of_the_machine_is_open_to_hostile_code_in_a_sandbox(user: int | None, *, is_restored: bool) -> None:
    with World(user=user) as world, IsolatedKernel(world, PROVISIONER, is_restored=is_restored) as kernel:
        found = run_probes(kernel.start(), world, kernel.start)
    assert found.errors == {}
    assert found.keys() == PROBES.keys()
    assert found.open == []
