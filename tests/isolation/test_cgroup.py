"""The choice of control groups, in a directory that stands for the file system of control groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_exec_ext.isolation.common import cgroup
from jupyter_exec_ext.isolation.common.cgroup import new_group

Tree = Callable[..., None]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Set the groups of this process, and the controllers that groups of version 2 offer."""

    def make(own: str, **offered: str) -> None:
        (tmp_path / "self").write_text(own)
        for place, controllers in offered.items():
            directory = tmp_path / place.replace("_", "/")
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.subtree_control").write_text(controllers)

    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_OWN_GROUPS", tmp_path / "self")
    # The files of a real group are there when it is made.
    monkeypatch.setattr(cgroup, "_write", lambda path, value: path.write_text(str(value)))
    return make


def made(tmp_path: Path) -> dict[str, set[str]]:
    """Return the limited resources of each group that was made, by the path of its parent."""
    groups = (path for path in tmp_path.rglob("jex-*") if path.is_dir())
    return {str(path.parent.relative_to(tmp_path)): {file.name for file in path.iterdir()} for path in groups}


PIDS, MEMORY = {"pids.max"}, {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}


@pytest.mark.parametrize(
    ("own", "parent", "place"),
    [
        ("pids", "cpu memory pids", "server"),
        ("cpu memory pids", "pids", "server/own"),
        ("memory pids", "memory pids", "server/own"),
        ("", "cpu memory pids", "server"),
    ],
)
def test_version_2_has_one_group_where_most_is_limited(
    tmp_path: Path, tree: Tree, own: str, parent: str, place: str
) -> None:
    tree("0::/server/own\n", server_own=own, server=parent)
    assert new_group(1000, 10) is not None
    assert made(tmp_path) == {place: PIDS | MEMORY}


def test_version_2_has_a_group_at_another_place_if_the_best_one_allows_none(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, value: int) -> None:
        if path.parent.parent == tmp_path / "server":
            raise PermissionError
        path.write_text(str(value))

    tree("0::/server/own\n", server_own="pids", server="memory pids")
    monkeypatch.setattr(cgroup, "_write", write)
    assert new_group(1000, 10) is not None
    assert made(tmp_path) == {"server/own": PIDS}


def test_version_1_refuses_devices_that_are_not_granted(tmp_path: Path, tree: Tree) -> None:
    tree("3:devices:/a\n2:pids:/\n")
    (tmp_path / "devices" / "a").mkdir(parents=True)
    (tmp_path / "pids").mkdir()
    assert new_group(None, 10) is not None
    assert made(tmp_path) == {"pids": PIDS}  # without granted devices, no further group
    assert new_group(None, 10, ["/dev/zero"]) is not None
    (group,) = (tmp_path / "devices" / "a").iterdir()
    assert (group / "devices.deny").read_text() == "a"
    assert (group / "devices.allow").read_text() == "c 1:5 rwm"  # the last one that was written


def test_version_1_has_a_group_for_each_hierarchy(tmp_path: Path, tree: Tree) -> None:
    tree("3:pids:/a\n2:memory:/b\n1:name=systemd:/\n0::/\n")
    (tmp_path / "pids" / "a").mkdir(parents=True)
    (tmp_path / "memory" / "b").mkdir(parents=True)
    assert new_group(1000, 10) is not None
    assert made(tmp_path) == {"pids/a": PIDS, "memory/b": MEMORY}


def test_controllers_of_one_hierarchy_of_version_1_share_a_group(tmp_path: Path, tree: Tree) -> None:
    tree("3:pids,memory:/a\n")
    (tmp_path / "pids,memory" / "a").mkdir(parents=True)
    for name in ("pids", "memory"):
        (tmp_path / name).symlink_to("pids,memory")
    assert new_group(1000, 10) is not None
    assert made(tmp_path) == {"pids,memory/a": PIDS | MEMORY}


def test_no_group_without_a_controller(tmp_path: Path, tree: Tree) -> None:
    tree("0::/server/own\n", server_own="hugetlb", server="io")
    assert new_group(1000, 10) is None
    assert made(tmp_path) == {}
