"""Whether this machine has Landlock, for tests that need it."""

from __future__ import annotations

import os

from jupyter_exec_ext.provisioners.landlock import ruleset


def _why_not() -> str | None:
    try:
        abi = ruleset.abi()
    except OSError as error:
        return f"this machine has no Landlock: {os.strerror(error.errno or 0)}"
    return None if abi >= ruleset.MIN_ABI else f"this machine has version {abi} of Landlock, which is too old"


NO_LANDLOCK = _why_not()
