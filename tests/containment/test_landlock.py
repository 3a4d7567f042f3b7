"""All probes in a kernel that Landlock holds: what is open is said here, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.containment.isolated import IsolatedKernel
from tests.containment.plain import NOBODY
from tests.containment.probes import PROBES
from tests.containment.runner import Found, run_probes
from tests.containment.world import World
from tests.support.full import IS_FULL

pytestmark = [
    pytest.mark.needs("Landlock"),
    pytest.mark.timeout(600),
]
PROVISIONER = "jupyter_exec_ext.isolation.landlock.LandlockProvisioner"
IS_ROOT = os.geteuid() == 0

#: The probes that succeed, and why. It is what this level does not hold, as far as there are probes for it.
OPEN: dict[str, str] = {}


@pytest.fixture(
    scope="module",
    params=([NOBODY, 0] if IS_FULL else [NOBODY]) if IS_ROOT else [None],
    ids=lambda user: f"user {user}",
)
def found(request: pytest.FixtureRequest) -> Iterator[tuple[int, Found]]:
    with World(user=request.param) as world, IsolatedKernel(world, PROVISIONER) as kernel:
        yield world.user, run_probes(kernel.start(), world, kernel.start)


def test_what_is_open_is_what_is_said_to_be(found: tuple[int, Found]) -> None:
    _, probes = found
    assert set(probes.open) == set(OPEN), {n: probes.notes[n] for n in probes.open}


def test_no_probe_makes_a_mistake(found: tuple[int, Found]) -> None:
    _, probes = found
    assert probes.errors == {}
    assert probes.keys() == PROBES.keys()
