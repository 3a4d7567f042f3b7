"""The command line of a sandbox, where the order of its parts matters."""

from __future__ import annotations

from jupyter_exec_ext.provisioners.sandbox.arguments import (
    HOME,
    SOCKET,
    SOCKETS,
    TEMPORARY,
    Descriptors,
    Limits,
    View,
    sandbox_arguments,
)

LIMITS = Limits(memory_bytes=None, cpu_seconds=None, processes=1, open_files=1, file_bytes=1, tmp_bytes=2**20)


def test_addresses_of_sockets_are_short_enough_for_every_kernel() -> None:
    # Those built on xeus up to 6.0 keep an address in 32 bytes, its end included.
    assert len(f"ipc://{SOCKETS}/{SOCKET}-99999\0") <= 32


def test_directories_in_memory_do_not_cover_what_is_seen_below_them() -> None:
    seen = [f"{TEMPORARY}/venv", f"{HOME}/data"]
    view = View(read_only=seen, links={}, hidden=[], work_directory="/srv/work")
    arguments = sandbox_arguments(
        view, {}, Descriptors(3, 4, 5, 6), LIMITS, socket_directory="/s", connection_file="/c"
    )
    assert all(arguments.count(place) == 1 for place in (TEMPORARY, HOME))
    for place in (TEMPORARY, HOME):
        assert all(arguments.index(place) < arguments.index(path) for path in seen)
