"""The command line of a sandbox, where the order of its parts matters."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.isolation.common.launch_request import HOME, SOCKET, SOCKETS, WORK_PLACES, Limits, View
from jupyter_exec_ext.isolation.sandbox.bubblewrap import DATA, TEMPORARY, Descriptors, sandbox_arguments

LIMITS = Limits(memory_bytes=None, cpu_seconds=None, processes=1, open_files=1, file_bytes=1, tmp_bytes=2**20)


def test_addresses_of_sockets_are_short_enough_for_every_kernel() -> None:
    # Those built on xeus up to 6.0 keep an address in 32 bytes, its end included.
    assert len(f"ipc://{SOCKETS}/{SOCKET}-99999\0") <= 32


def test_directories_in_memory_do_not_cover_what_is_seen_below_them() -> None:
    seen = [f"{TEMPORARY}/venv", f"{HOME}/data"]
    view = View(read_only=seen, links={}, hidden=[], work_directory="/srv/work")
    arguments = sandbox_arguments(view, {}, Descriptors(3, 4, 5, 6), LIMITS, connection_file="/c")
    assert all(arguments.count(place) == 1 for place in (TEMPORARY, HOME))
    for place in (TEMPORARY, HOME):
        assert all(arguments.index(place) < arguments.index(path) for path in seen)


def bound(view: View) -> list[tuple[str, str, str]]:
    """Return what is bound where, and how."""
    arguments = sandbox_arguments(view, {}, Descriptors(3, 4, 5, 6), LIMITS, connection_file="/c")
    return [
        (how, arguments[at + 1], arguments[at + 2])
        for at, how in enumerate(arguments)
        if how in ("--bind", "--ro-bind") and arguments[at + 1].startswith("/srv/work")
    ]


def test_the_working_directory_is_at_both_places_with_what_it_must_not_change() -> None:
    view = View(read_only=[], links={}, hidden=[], work_directory="/srv/work", read_only_inside_work=["venv"])
    assert bound(view) == [
        (how, source, place)
        for at in (WORK_PLACES[0], DATA)
        for how, source, place in [("--bind", "/srv/work", at), ("--ro-bind", "/srv/work/venv", f"{at}/venv")]
    ]


def test_settings_of_an_installation_in_the_working_directory_are_hidden_at_both_places() -> None:
    view = View(
        read_only=[],
        links={},
        hidden=[],
        work_directory="/srv/work",
        read_only_inside_work=["venv"],
        hidden_inside_work=["venv/etc/jupyter"],
    )
    arguments = sandbox_arguments(view, {}, Descriptors(3, 4, 5, 6), LIMITS, connection_file="/c")
    for place in (WORK_PLACES[0], DATA):
        at = arguments.index(f"{place}/venv/etc/jupyter")
        assert arguments[at - 1 : at + 3] == ["--tmpfs", arguments[at], "--remount-ro", arguments[at]]
        assert at > arguments.index(f"{place}/venv")


@pytest.mark.parametrize("taken", ["/mnt", "/mnt/", "/mnt/data", "/mnt/data/venv"])
@pytest.mark.parametrize("how", ["read_only", "writable", "links"])
def test_what_is_seen_at_the_second_place_stays_there(taken: str, how: str) -> None:
    view = View(
        read_only=[taken] if how == "read_only" else [],
        links={taken: "x"} if how == "links" else {},
        hidden=[],
        work_directory="/srv/work",
        writable={taken: "/elsewhere"} if how == "writable" else {},
    )
    assert [place for _, _, place in bound(view)] == [WORK_PLACES[0]]


def test_what_is_beside_the_second_place_does_not_matter() -> None:
    view = View(read_only=["/mnt/database", "/mn"], links={}, hidden=[], work_directory="/srv/work")
    assert [place for _, _, place in bound(view)] == [WORK_PLACES[0], DATA]
