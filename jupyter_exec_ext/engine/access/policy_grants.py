"""Effective grants of a caller's sessions: the directories and devices that each of its policies grants."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ...auth.policy import Policy

#: Tells a sandbox which directories and devices to show. The value is JSON.
GRANTS_VARIABLE = "JUPYTER_EXEC_GRANTS"


def grants_within(policies: Iterable[Policy]) -> dict[str, str]:
    """Return the variable for a kernel with the directories and devices of all policies; nothing if there are none."""
    policies = list(policies)
    if not policies:
        return {}
    first, *others = policies
    mounts = dict(pair for pair in first.mounts if all(pair in each.mounts for each in others))
    devices = [device for device in first.devices if all(device in each.devices for each in others)]
    # Sorted, since pooled kernels with the same grants are alike.
    value = json.dumps({"mounts": mounts, "devices": sorted(devices)}, sort_keys=True)
    return {GRANTS_VARIABLE: value} if mounts or devices else {}
