"""Races that the state machine of `test_states.py` has found, each at many moments; it checks every outcome, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.full import IS_FULL

from .test_states import MAX_QUEUED, ME, EngineMachine


class Race:
    """An engine with one session, and a moment that is another one in each test."""

    def __init__(self, seed: int) -> None:
        self.machine = EngineMachine()
        self.machine.begin(seed=seed, abruptly=False)
        self.machine.nothing_goes_wrong()
        self._seconds = seed * 0.001

    def moment(self) -> None:
        self.machine.time_passes(self._seconds)


# Milliseconds; a commit tries fewer moments.
@pytest.fixture(params=range(0, 40, 1 if IS_FULL else 5))
def race(request: pytest.FixtureRequest) -> Iterator[Race]:
    race = Race(request.param)
    yield race
    race.machine.teardown()


def test_a_kernel_dies_during_a_restart(race: Race) -> None:
    race.machine.restart(0, wait=False)
    race.moment()
    if race.machine.host.processes[-1].alive:
        race.machine.a_kernel_dies(0)


def test_a_kernel_dies_while_its_session_is_deleted(race: Race) -> None:
    race.machine.delete(0, wait=False)
    race.moment()
    if race.machine.host.processes[-1].alive:
        race.machine.a_kernel_dies(0)


def test_a_kernel_dies_as_soon_as_it_has_started_for_an_execution(race: Race) -> None:
    race.machine.a_kernel_dies(0)
    race.machine.time_passes(0.1)
    race.machine.submit(0, "ok", wait=False)
    while len(race.machine.host.processes) == 1:
        race.machine.time_passes(0.001)
    race.moment()
    race.machine.a_kernel_dies(0)


def test_a_lost_answer_is_given_again_while_the_session_is_deleted(race: Race) -> None:
    race.machine.submit(0, "ok", wait=True)
    race.machine.delete(0, wait=False)
    race.moment()
    race.machine.submit_again(0, wait=True)
    assert not race.machine.asked[-1].refused


def test_a_lost_answer_is_given_again_when_the_queue_is_full(race: Race) -> None:
    race.machine.submit(0, "ok", wait=True)
    race.machine.submit(0, "stubborn", wait=True)
    for _ in range(MAX_QUEUED + 1):
        race.machine.submit(0, "ok", wait=True)
    race.machine.submit_again(MAX_QUEUED, wait=True)
    assert not race.machine.asked[-1].refused


def test_an_interrupt_does_not_reach_the_code_after_the_one_it_was_meant_for(race: Race) -> None:
    race.machine.a_kernel_dies(0)  # which becomes known when code has been sent to it
    race.machine.submit(0, "wait", wait=False)
    race.machine.submit(0, "wait", wait=False)
    race.moment()
    race.machine.interrupt(0, wait=False)


def test_an_interrupt_that_comes_too_late_has_not_interrupted(race: Race) -> None:
    race.machine.submit(0, "ok", wait=False)
    race.moment()
    race.machine.interrupt(0, wait=False)
    race.machine.restart(0, wait=False)


def test_a_list_is_never_older_than_what_was_seen_before(race: Race) -> None:
    race.machine.submit(0, "ok", wait=True)
    race.moment()
    race.machine.nothing_goes_wrong()
    race.machine.look(0)


def test_what_runs_is_stopped_before_what_is_queued_is_recorded(race: Race) -> None:
    race.machine.submit(0, "stubborn", wait=True)
    for _ in range(MAX_QUEUED):
        race.machine.submit(0, "ok", wait=True)
    race.moment()
    at = race.machine.now
    race.machine.delete(0, wait=True)
    assert all(process.ended_at is None or process.ended_at <= at for process in race.machine.host.processes)


@pytest.mark.parametrize("request_", ["submit", "create"])
def test_a_server_stops_while_something_is_asked(race: Race, request_: str) -> None:
    race.machine.abruptly = True
    if request_ == "create":
        race.machine.create(wait=False)
    else:
        race.machine.submit(0, "wait", wait=False)
        race.machine.submit(0, "ok", wait=False)
    race.moment()


@pytest.mark.parametrize("request_", ["cancel", "restart", "approve", "reject"])
def test_the_time_for_an_approval_is_over_while_something_else_is_done(race: Race, request_: str) -> None:
    race.machine.create(wait=True, by_token=True)
    race.machine.submit_what_needs_approval(0, "ok", wait=True)
    asked_at = race.machine.asked[-1].at
    race.machine.time_passes(asked_at + 0.97 - race.machine.now)
    race.moment()
    if race.machine.engine.approvals.list(ME):
        if request_ == "cancel":
            race.machine.cancel(0, wait=False)
        elif request_ == "restart":
            race.machine.restart(1, wait=False)
        else:
            race.machine.decide(0, [request_], "ok")


def test_the_time_for_an_approval_does_not_end_what_was_approved(race: Race) -> None:
    race.machine.create(wait=True, by_token=True)
    race.machine.submit(1, "stubborn", wait=True)  # it keeps what was approved from running until after that time
    race.machine.submit_what_needs_approval(0, "ok", wait=True)
    race.machine.time_passes(0.3)
    race.moment()
    race.machine.decide(0, ["approve"], "ok")


@pytest.mark.parametrize("control", ["restart", "delete"])
def test_what_a_cancel_ends_has_ended_when_a_later_request_is_answered(race: Race, control: str) -> None:
    race.machine.create(wait=True, by_token=True)
    race.machine.submit_what_needs_approval(1, "ok", wait=True)
    race.machine.cancel(0, wait=False)
    race.moment()
    getattr(race.machine, control)(1, wait=False)
