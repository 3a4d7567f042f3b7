"""Removal of trees that hostile code has made, wherever the package removes something."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.files.local_files import LocalFiles
from jupyter_exec_ext.engine.kernels.shared_resources import EngineResources
from jupyter_exec_ext.engine.ports import NO_LIMITS
from jupyter_exec_ext.isolation.common import leftovers
from jupyter_exec_ext.store.log_file import remove_spool, spool_path
from jupyter_exec_ext.store.recovery import ServerInstance
from jupyter_exec_ext.system import removal
from jupyter_exec_ext.system.removal import ASIDE_NAME, describe_leftovers, remove_tree, retry_leftovers
from tests.support import hostile_trees
from tests.support.full import IS_FULL, only_in_full
from tests.support.hostile_trees import TREES, deep
from tests.support.outside_parts import require_part

SCENARIO = Path(__file__).parents[1] / "support" / "removal_scenario.py"
NOBODY = 65534
# A commit has deep trees, and those with names and modes that are hard to handle.
_SLOW_TREES = ("wide", "many_directories")


def _other_pythons() -> list[str]:
    """Return the other supported Pythons of this machine; in the full run."""
    found = [python for minor in range(10, 16) if (python := shutil.which(f"python3.{minor}"))] if IS_FULL else []
    return [python for python in found if subprocess.run([python, "-c", "pass"], capture_output=True).returncode == 0]


def _wait_until_removed(seconds: float = 60.0) -> None:
    """Wait for the background thread, which goes on where a busy disk took too long."""
    give_up_at = time.monotonic() + seconds
    while describe_leftovers() is not None:
        assert time.monotonic() < give_up_at, describe_leftovers()
        time.sleep(0.01)  # another thread's work, of which nobody tells the end


@pytest.fixture(autouse=True)
def _no_leftovers_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_leftovers", removal._Leftovers())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=only_in_full if name in _SLOW_TREES else ()) for name in TREES]
)
def test_hostile_tree_is_removed_whole(tmp_path: Path, name: str) -> None:
    TREES[name](tmp_path / "tree")
    assert remove_tree(tmp_path / "tree", seconds=60.0) is None
    assert not os.path.lexists(tmp_path / "tree")
    assert not (tmp_path / ASIDE_NAME).exists()
    assert describe_leftovers() is None


@only_in_full
@pytest.mark.parametrize("python", [sys.executable, *_other_pythons()])
def test_hostile_trees_are_removed_by_an_ordinary_user_with_few_descriptors(tmp_path: Path, python: str) -> None:
    """Root may read what is closed, so it is tried as another user where we are root."""
    place = Path(f"/tmp/jex-removal-{os.getpid()}")  # its parents can be entered by anybody
    place.mkdir()
    try:
        program = place / "support"
        shutil.copytree(SCENARIO.parent, program)
        shutil.copy(removal.__file__, place / "removal.py")
        subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True)
        trees = place / "trees"
        trees.mkdir()
        if os.getuid() == 0:
            os.chown(trees, NOBODY, NOBODY)
        command = [shutil.which(python) or python, str(program / SCENARIO.name), str(place / "removal.py"), str(trees)]
        done = subprocess.run([*command, str(NOBODY)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_link_at_the_name_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert remove_tree(tmp_path / "link") is None
    assert (tmp_path / "target" / "kept").read_text() == "kept"
    assert not os.path.lexists(tmp_path / "link")


def test_what_is_not_there_is_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing") is None
    assert remove_tree(tmp_path / "no" / "parent") is None
    (tmp_path / "file").write_text("x")
    assert remove_tree(tmp_path / "file" / "below") is not None  # and does not raise


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Make a file one that not even root can remove."""
    require_part("immutable files")
    subprocess.run(["chattr", "+i", str(path)], check=True, capture_output=True)
    try:
        yield
    finally:
        for found in (path, *path.parent.parent.rglob(path.name)):
            subprocess.run(["chattr", "-i", str(found)], capture_output=True)


def test_immutable_file_is_moved_aside_with_its_tree_and_reported(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "immutable").write_text("x")
    (tree / "other").write_text("x")
    with immutable(tree / "a" / "b" / "immutable"):
        left = remove_tree(tree)
        assert left is not None and left.path.parent == tmp_path / ASIDE_NAME
        assert not tree.exists(), "its name is free"
        assert not (left.path / "other").exists(), "all else is removed"
        trouble = describe_leftovers()
        assert trouble is not None and str(left.path) in trouble and "Operation not permitted" in trouble
        retry_leftovers(tmp_path)
        assert describe_leftovers() == trouble
        subprocess.run(["chattr", "-i", str(left.path / "a" / "b" / "immutable")], check=True)
        retry_leftovers(tmp_path)
    assert describe_leftovers() is None
    assert not (tmp_path / ASIDE_NAME).exists()


@pytest.mark.parametrize("name", ["a" * 255, "\N{EURO SIGN}" * 85], ids=["one_byte", "three_bytes"])
def test_tree_with_a_name_of_the_greatest_length_is_moved_aside(tmp_path: Path, name: str) -> None:
    tree = tmp_path / name
    (tree / "directory").mkdir(parents=True)
    left = remove_tree(tree, seconds=0.0)
    assert left is not None and left.path.parent == tmp_path / ASIDE_NAME
    assert not tree.exists(), "its name is free"
    _wait_until_removed()


def test_immutable_directory_stays_where_it_is_and_is_reported(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with immutable(tree):
        left = remove_tree(tree)
        assert left is not None and left.path == tree
        assert str(tree) in (describe_leftovers() or "")


@pytest.mark.needs("mounts")
def test_full_disk_does_not_keep_a_tree(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(disk)], check=True, capture_output=True)
    try:
        deep(disk / "tree", 500)
        with pytest.raises(OSError, match="No space"):
            (disk / "tree" / "full").write_bytes(bytes(2 * 1024**2))
        assert remove_tree(disk / "tree") is None
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_removal_ends_in_time_and_goes_on_in_the_background(tmp_path: Path) -> None:
    hostile_trees.wide(tmp_path / "tree", 20_000)
    left = remove_tree(tmp_path / "tree", seconds=0.0)
    assert left is not None and "background" in left.reason
    assert not (tmp_path / "tree").exists()
    _wait_until_removed()
    assert not left.path.exists()


def test_running_code_that_keeps_adding_files_does_not_hold_up_the_removal(tmp_path: Path) -> None:
    tree, over = tmp_path / "tree", threading.Event()
    tree.mkdir()

    def add() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                (tree / f"d{number % 50}").mkdir(exist_ok=True)
                (tree / f"d{number % 50}" / str(number)).write_text("x")
            except OSError:
                continue

    adding = threading.Thread(target=add)
    adding.start()
    try:
        began = time.monotonic()
        remove_tree(tree, seconds=0.5)
        assert time.monotonic() - began < 10
    finally:
        over.set()
        adding.join()


def test_directory_that_is_moved_out_meanwhile_takes_the_removal_nowhere_else(tmp_path: Path) -> None:
    """Going up from a directory that was moved would lead to where it is now."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    for number in range(200):
        inner = tmp_path / "tree" / "a" / "b"
        inner.mkdir(parents=True)
        hostile_trees.wide(inner, 20)
        moving = threading.Thread(target=_move, args=(inner, outside / str(number)))
        moving.start()
        remove_tree(tmp_path / "tree")
        moving.join()
        assert (outside / "kept").read_text() == "kept"


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:
        return


# --- wherever something is removed


def _of_a_session(base: Path) -> tuple[Path, Callable[[], object]]:
    files = LocalFiles(base, NO_LIMITS, max_watched_entries=0, log=logging.getLogger(__name__))
    return base / "ses_1", lambda: _run(files.remove("ses_1"))


def _run(work: object) -> None:
    import asyncio

    asyncio.run(work)  # type: ignore[arg-type]


def _of_a_spool(base: Path) -> tuple[Path, Callable[[], object]]:
    return spool_path(base, "ses_1", "exe_1"), lambda: remove_spool(base, "ses_1", "exe_1")


def _of_a_sandbox(base: Path) -> tuple[Path, Callable[[], object]]:
    return base / "server" / "kernel", lambda: leftovers.remove_directory(base / "server" / "kernel")


def _of_an_engine(base: Path) -> tuple[Path, Callable[[], object]]:
    resources = EngineResources(10**6)
    directory = resources.private_directory()
    return directory, resources.close


def _of_a_server(base: Path) -> tuple[Path, Callable[[], object]]:
    instance = ServerInstance(base / "servers")

    def forget() -> None:
        instance.forget("gone")
        instance.close()

    return base / "servers" / "gone.lock", forget


PLACES = {
    "session": _of_a_session,
    "spool": _of_a_spool,
    "sandbox": _of_a_sandbox,
    "engine": _of_an_engine,
    "server": _of_a_server,
}


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=only_in_full if place in ("spool", "engine") else ()) for place in PLACES]
)
def test_every_place_that_removes_copes_with_hostile_trees(tmp_path: Path, place: str) -> None:
    path, remove = PLACES[place](tmp_path)
    path.mkdir(parents=True, exist_ok=True)
    deep(path / "deep", 2_000)  # more than Python recurses
    for name in ("closed", "badly_named", "special_files"):
        TREES[name](path / name)
    remove()
    if place != "engine":  # its directory is not moved aside, and a busy disk leaves the rest to the background
        assert not os.path.lexists(path)
    _wait_until_removed()
    assert not os.path.lexists(path)


def test_sandbox_directory_is_emptied_before_it_is_used_again(tmp_path: Path) -> None:
    deep(tmp_path / "server" / "kernel", 2_000)
    leftovers.make_anew(tmp_path / "server" / "kernel")
    assert os.listdir(tmp_path / "server" / "kernel") == []


def test_sweep_removes_what_dead_servers_left(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    base = leftovers.base_directory()
    namespace = os.stat("/proc/self/ns/pid").st_ino
    dead = base / f"{namespace}-{2**22}-1"
    deep(dead / "kernel", 2_000)
    deep(base / ASIDE_NAME / "earlier", 2_000)
    leftovers.sweep()
    _wait_until_removed()
    assert [path for path in base.rglob("*") if path.name != ASIDE_NAME] == []
