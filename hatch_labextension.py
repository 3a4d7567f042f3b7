"""Build step of the JupyterLab front end, called by hatch-jupyter-builder.

Standard library only: it runs in the isolated build environment. Node is needed to build the front end and not to
install the package: where there is none, the wheel is without it and says so.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

log = logging.getLogger(__name__)

# What the bundle is made from. Lists of names, since what tools leave there must not count.
SOURCES = (
    ".npmrc",
    "install.json",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "rspack.config.js",
    "src",
    "style",
    "schema",
)
STAMP = "sources.sha256"
OLDEST_NODE = (20, 19)


def build(target_name: str, version: str, path: str = "labextension") -> None:
    """Make ``dist`` from the sources, unless it is made from these already."""
    root = Path(path).resolve()
    dist = root / "dist"
    wanted = fingerprint(root)
    if _stamp(dist) == wanted:
        log.info("labextension: the bundle in %s is up to date", dist)
        return
    npm = shutil.which("npm")
    problem = node_problem()
    if npm is None or problem is not None:
        if os.environ.get("REQUIRE_LABEXTENSION") == "1":
            raise RuntimeError(f"cannot build the JupyterLab extension: {problem}")
        # A bundle of other sources would be worse than none.
        shutil.rmtree(dist, ignore_errors=True)
        log.warning("labextension: %s; building WITHOUT the JupyterLab panel", problem)
        return
    subprocess.run([npm, "ci"], cwd=root, check=True)
    subprocess.run([npm, "run", "build:prod"], cwd=root, check=True)
    # Here, so that a wheel without a bundle leaves nothing behind.
    shutil.copyfile(root / "install.json", dist / "install.json")
    (dist / STAMP).write_text(wanted + "\n")


def fingerprint(root: Path) -> str:
    """Return a digest of the sources, the same wherever they lie and whatever git did to their line ends."""
    digest = hashlib.sha256()
    for name in SOURCES:
        path = root / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                digest.update(file.relative_to(root).as_posix().encode() + b"\0")
                digest.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def node_problem() -> str | None:
    """Say why Node cannot be used here; None if it can."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return "node and npm are not on PATH"
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)\.(\d+)", done.stdout)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_NODE:
        wanted = ".".join(map(str, OLDEST_NODE))
        return f"Node.js >= {wanted} is needed, found {done.stdout.strip() or 'none that runs'}"
    return None


def _stamp(dist: Path) -> str | None:
    try:
        return (dist / STAMP).read_text().strip()
    except FileNotFoundError:
        return None
