"""A session with a granted GPU, for machines that have one from NVIDIA; elsewhere `tests/server/test_grants.py`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.bearers import mint
from tests.support.hosts import running_host

pytestmark = [
    pytest.mark.needs("sandbox"),
    pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="this machine has no NVIDIA GPU"),
]
_CODE = """
import ctypes, os
print(sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")))
print(ctypes.CDLL("libcuda.so.1").cuInit(0))
"""


def test_session_uses_the_granted_gpu_and_sees_no_other(tmp_path: Path) -> None:
    policies = json.dumps({"gpu": {"isolation": "sandbox", "devices": ["nvidia:0"]}})
    options = [f"--ExecEngine.policies={policies}", "--IsolatedProvisioner.max_memory_bytes=0"]
    with running_host("server", tmp_path, *options) as host:
        agent = mint(host, policy="gpu")
        seen, code = agent.run(agent.session(), _CODE).json()["stdout"].splitlines()
    numbered = [name for name in json.loads(seen.replace("'", '"')) if name.removeprefix("nvidia").isdigit()]
    assert (numbered, code) == (["nvidia0"], "0")  # cuInit answers 0 for success
