"""Requirements of isolation with Landlock, and the errors when they are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..common.isolation_support import IsolationUnavailableError, needed_filter
from . import ruleset
from .landlock_process import LandlockProcess, NotStartedError, Orders

_TRIAL_SECONDS = 20.0
_ELSEWHERE = "or use the level 'sandbox', or a remote kernel"


def ready_filter() -> Path:
    """Return the filter of system calls, after one trial of the isolation in this process.

    Raises
    ------
    IsolationUnavailableError
        If a requirement is missing, or the trial fails.
    """
    allowed_calls = needed_filter("landlock")
    try:
        abi = ruleset.abi()
    except OSError as error:
        raise IsolationUnavailableError(
            "no_landlock",
            f"this system has no Landlock ({os.strerror(error.errno or 0)}); use Linux 6.12 or later with "
            f"CONFIG_SECURITY_LANDLOCK and 'landlock' among its security modules (lsm=), and a container that allows "
            f"its system calls, {_ELSEWHERE}",
        ) from None
    if abi < ruleset.MIN_ABI:
        raise IsolationUnavailableError(
            "old_landlock",
            f"this system has version {abi} of Landlock, which leaves signals and sockets of other processes open; "
            f"version {ruleset.MIN_ABI} is needed: use Linux 6.12 or later, {_ELSEWHERE}",
        )
    _try(allowed_calls)
    return allowed_calls


@cache  # exceptions are not cached, so a failed trial is repeated
def _try(allowed_calls: Path) -> None:
    orders = Orders(
        program=sys.executable,
        command=[sys.executable, "-V"],
        environment={},
        directory="/",
        rules=[("/", "read")],
        limits={},
        filter=allowed_calls,
    )
    try:
        process = LandlockProcess(orders, environment={}, group=None, output=subprocess.DEVNULL)
    except NotStartedError as error:
        raise failure(error.report, orders.program) from None
    try:
        code = process.wait(_TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    finally:
        process.close()
    if code != 0:
        raise IsolationUnavailableError(
            "landlock_failed", f"a program under Landlock ended with {code} where it had nothing to do; {_ELSEWHERE}"
        )


def failure(report: Mapping[str, Any] | None, program: str) -> Exception:
    """Return the error for a kernel that was not started, from its launcher's report."""
    if report is None:
        return IsolationUnavailableError(
            "launcher_failed",
            "the launcher of isolated kernels ended without a word; the server's log may say why, such as that there "
            "is no memory",
        )
    step, code = report["step"], report["errno"]
    if step == "command" and code is not None:
        return OSError(code, os.strerror(code), program)
    text = "".join(character if character.isprintable() else " " for character in str(report["message"]))[:300]
    if step == "seccomp":
        return IsolationUnavailableError(
            "no_seccomp", f"the filter of system calls could not be set ({text}); allow the system call 'seccomp'"
        )
    return IsolationUnavailableError(
        f"{step}_failed", f"a kernel could not be isolated with Landlock, in the step {step!r}: {text}; {_ELSEWHERE}"
    )
