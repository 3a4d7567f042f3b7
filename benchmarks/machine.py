"""Description of a run: the machine, the versions, and the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from .peers import ROOT

OUR_PACKAGES = (
    *("jupyter-exec-ext", "jupyter_client", "ipykernel", "ipython", "jupyter_server", "jupyter_kernel_gateway"),
    *("tornado", "pyzmq", "aiohttp", "requests", "numpy", "pandas", "matplotlib"),
)


def processor() -> str:
    """Return the processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str:
    """Return the commit that is checked out, and whether something is changed; nothing outside of a checkout."""
    try:
        asked = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], **asked).stdout.strip()  # type: ignore[call-overload]
        changed = subprocess.run(["git", "status", "--porcelain", "-uno"], **asked).stdout.strip()  # type: ignore[call-overload]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{head}{' with changes' if changed else ''}"


def installed() -> dict[str, str]:
    """Return which versions of the packages that matter are installed here."""
    found = {}
    for package in OUR_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def load_average() -> list[float]:
    """Return the machine's load in the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def description() -> dict[str, Any]:
    """Return everything about the machine that a reader of the figures has to know."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": installed(),
        "load_average_before": load_average(),
    }
