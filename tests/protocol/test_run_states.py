from __future__ import annotations

import itertools
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.protocol.run_states import (
    CODE_TRANSITIONS,
    ENDS,
    PROCESS_TRANSITIONS,
    STOP_TRANSITIONS,
    Code,
    End,
    Process,
    RunInput,
    RunStates,
    Stop,
)

INPUTS = st.lists(st.sampled_from(RunInput), max_size=12)


def states_after(*inputs: RunInput) -> RunStates:
    states = RunStates()
    for input_ in inputs:
        states.feed(input_)
    return states


def test_every_state_has_a_row() -> None:
    assert set(CODE_TRANSITIONS) == set(Code)
    assert set(STOP_TRANSITIONS) == set(Stop)
    assert set(PROCESS_TRANSITIONS) == set(Process)


def test_every_input_has_an_effect_somewhere() -> None:
    rows: list[Collection[RunInput]] = [*CODE_TRANSITIONS.values(), *STOP_TRANSITIONS.values()]
    rows += PROCESS_TRANSITIONS.values()
    assert {input_ for row in rows for input_ in row} == set(RunInput)


def test_code_state_without_a_way_out_is_an_end() -> None:
    for code, row in CODE_TRANSITIONS.items():
        assert set(row) <= {RunInput.TAKE_BACK} if code in ENDS else row, code


@given(inputs=INPUTS)
def test_wish_does_not_change_after_the_end(inputs: list[RunInput]) -> None:
    states = states_after(RunInput.SEND)
    for input_ in inputs:
        before, ended = states.stop, states.end is not None
        states.feed(input_)
        if ended:
            assert states.stop is before


@given(inputs=INPUTS)
def test_feed_reports_exactly_the_changes(inputs: list[RunInput]) -> None:
    states = states_after()
    for input_ in inputs:
        before = (states.code, states.stop, states.process)
        assert states.feed(input_) is (before != (states.code, states.stop, states.process))


@given(inputs=INPUTS)
def test_run_can_always_be_ended_by_its_process(inputs: list[RunInput]) -> None:
    states = states_after(*inputs)
    states.feed(RunInput.EXIT)
    assert states.end is not None


@given(inputs=INPUTS)
def test_time_that_is_up_twice_kills_code_that_has_not_replied(inputs: list[RunInput]) -> None:
    states = states_after(RunInput.SEND, *inputs)
    if states.end is None and states.code is not Code.REPLIED:
        states.feed(RunInput.TIME_UP)
        states.feed(RunInput.TIME_UP)
        assert states.end is not None or states.stop is Stop.KILLING


def test_reply_and_idle_in_either_order_complete_a_run() -> None:
    for halves in itertools.permutations([RunInput.REPLY, RunInput.IDLE]):
        assert states_after(RunInput.SEND, RunInput.START, *halves).code is Code.COMPLETE


def test_silence_after_one_half_ends_a_run_without_the_other() -> None:
    assert states_after(RunInput.SEND, RunInput.REPLY, RunInput.SILENCE).code is Code.NO_IDLE
    assert states_after(RunInput.SEND, RunInput.IDLE, RunInput.SILENCE).code is Code.NO_REPLY


def test_time_up_after_the_reply_stops_nothing() -> None:
    states = states_after(RunInput.SEND, RunInput.REPLY, RunInput.TIME_UP)
    assert (states.stop, states.end) == (Stop.GOING, None)


def test_idle_while_stopping_is_enough() -> None:
    for wish in (RunInput.STOP, RunInput.KILL, RunInput.TIME_UP):
        states = states_after(RunInput.SEND, wish, RunInput.IDLE)
        assert (states.code, states.end) == (Code.STOPPED, End.COMPLETE)


def test_process_that_exits_after_completion_leaves_the_run_complete() -> None:
    assert states_after(RunInput.SEND, RunInput.REPLY, RunInput.EXIT, RunInput.IDLE).end is End.COMPLETE


def test_later_answer_without_reply_means_lost_or_after_a_restart_died() -> None:
    assert states_after(RunInput.SEND, RunInput.LATER_ANSWER).end is End.LOST
    assert states_after(RunInput.SEND, RunInput.RESTART, RunInput.LATER_ANSWER).end is End.DIED
    assert states_after(RunInput.SEND, RunInput.REPLY, RunInput.LATER_ANSWER).end is None


def test_lost_connection_means_lost_unless_kernel_has_replied() -> None:
    assert states_after(RunInput.SEND, RunInput.DISCONNECT).end is End.LOST
    assert states_after(RunInput.SEND, RunInput.IDLE, RunInput.DISCONNECT).end is End.LOST
    assert states_after(RunInput.SEND, RunInput.REPLY, RunInput.DISCONNECT).code is Code.NO_IDLE


def test_request_that_was_taken_back_can_be_sent_again() -> None:
    states = states_after(RunInput.SEND, RunInput.REPLY, RunInput.IDLE, RunInput.TAKE_BACK, RunInput.SEND)
    assert (states.code, states.end) == (Code.SENT, None)
