"""In a sandbox no attack has an effect, whether the server runs as root or not."""

from __future__ import annotations

import os

import pytest

from tests.containment.isolated import probe_as
from tests.containment.plain import NOBODY
from tests.containment.probes import PROBES

pytestmark = pytest.mark.timeout(900)
# Who is not root tests as who they are.
USERS = [0, NOBODY] if os.geteuid() == 0 else [os.geteuid()]


@pytest.mark.parametrize("user", USERS)
def test_nothing_of_the_machine_is_open_to_hostile_code_in_a_sandbox(user: int) -> None:
    found = probe_as(user, "sandbox-provisioner")
    assert found["errors"] == {}
    assert set(found["tried"]) == set(PROBES)
    assert found["open"] == []
