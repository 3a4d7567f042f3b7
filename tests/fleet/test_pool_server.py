"""Sessions that a server has counted, and those on their way to it."""

from __future__ import annotations

import time

import pytest

from jupyter_exec_ext.fleet.pool_server import Reservation, Server, ServerState
from jupyter_exec_ext.models import ServerLoad


def load(sessions: int, *, running: int = 0, draining: bool = False) -> ServerLoad:
    return ServerLoad("w1", draining, sessions, running, 0, None, 0, None, None, 0)


def reserve(server: Server) -> tuple[Reservation, list[str]]:
    released: list[str] = []
    return Reservation(server, lambda: released.append("released")), released


def test_place_is_free_again_once_when_no_session_was_created() -> None:
    server = Server("w1")
    reservation, released = reserve(server)
    assert server.snapshot.coming == 1
    for is_kept in (False, False, True):
        reservation.done(is_kept)
    assert (server.snapshot.coming, released) == (0, ["released"])


def test_created_session_is_coming_until_a_later_request_for_the_load() -> None:
    server = Server("w1")
    reservation, released = reserve(server)
    asked_before = time.monotonic()
    reservation.done(is_kept=True)
    reservation.done(is_kept=False)
    server.note_load(load(0), asked_before)  # was sent before the session was there
    assert server.snapshot.coming == 1
    server.note_load(load(1), time.monotonic())
    assert (server.snapshot.sessions, server.snapshot.coming, released) == (1, 0, [])


def test_reservation_that_is_open_is_coming_whatever_the_load_says() -> None:
    server = Server("w1")
    reserve(server)
    server.note_load(load(1), time.monotonic())
    assert server.snapshot.coming == 1


def test_server_is_empty_since_its_last_session() -> None:
    server = Server("w1")
    server.note_load(load(0), 5.0)
    server.note_load(load(0), 6.0)
    assert server.empty_since == 5.0
    reservation, _ = reserve(server)
    assert server.empty_since is None
    server.note_load(load(0), 7.0)
    assert server.empty_since is None
    reservation.done(is_kept=False)
    server.note_load(load(0), 8.0)
    assert server.empty_since == 8.0
    server.note_load(load(1), 9.0)
    assert server.empty_since is None


@pytest.mark.parametrize(
    ("state", "answer", "is_drained"),
    [
        (ServerState.DRAINING, load(0, draining=True), True),
        (ServerState.DRAINING, load(1, draining=True), False),
        (ServerState.DRAINING, load(0, running=1, draining=True), False),
        (ServerState.DRAINING, load(0), False),  # from before the drain
        (ServerState.READY, load(0, draining=True), False),
    ],
)
def test_server_is_drained_when_nothing_is_left(state: ServerState, answer: ServerLoad, is_drained: bool) -> None:
    server = Server("w1", state=state)
    assert not server.is_drained
    server.note_load(answer, 1.0)
    assert server.is_drained is is_drained
    reserve(server)
    assert not server.is_drained
