"""Removes every kind of hostile tree with one Python, as one user: ``removal_scenario.py REMOVAL_PY DIRECTORY UID``."""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(__file__))
from hostile_trees import TREES  # type: ignore[import-not-found]  # run as a file, by other Pythons


def main() -> None:
    """Make and remove the trees; exit with a message where something is left."""
    source, directory, uid = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    specification = importlib.util.spec_from_file_location("removal", source)
    assert specification is not None and specification.loader is not None
    removal = importlib.util.module_from_spec(specification)
    sys.modules["removal"] = removal  # dataclasses look there
    specification.loader.exec_module(removal)
    if os.geteuid() == 0:
        os.setgid(uid)
        os.setuid(uid)
    for name, make in TREES.items():
        tree = directory / name
        make(tree)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, limits[1]))  # depth must not cost descriptors
        left = removal.remove_tree(tree, seconds=60.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if left is not None or os.path.lexists(tree):
            sys.exit(f"{name} is still there: {left}")
    if (directory / "outside" / "kept").read_text() != "kept":
        sys.exit("a link was followed")


if __name__ == "__main__":
    main()
