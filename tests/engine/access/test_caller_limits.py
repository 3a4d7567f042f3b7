from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.auth.caller import Bound, Caller, owner, token_principal
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.engine.access.caller_limits import Admission, Ticket
from jupyter_exec_ext.errors import PolicyLimitReached


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def bearer(*chain: tuple[str, Policy]) -> Caller:
    ids = tuple(token_id for token_id, _ in chain)
    bounds = [Bound(token_principal(ids[: n + 1]), policy) for n, (_, policy) in enumerate(chain)]
    return Caller(token_principal(ids), bounds=tuple(bounds))


def policy(**limits: Any) -> Policy:
    unlimited = BUILT_IN["trusted"]
    return Policy(**{name: getattr(unlimited, name) for name in unlimited.__dataclass_fields__} | limits)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_owner_is_never_counted() -> None:
    admission = Admission()
    for _ in range(1000):
        admission.enter(owner())
    admission.check_session(owner(), ["owner"] * 1000)


def test_a_place_is_free_again_when_an_execution_ends() -> None:
    admission, caller = Admission(), bearer(("a", policy(max_open_executions=2)))
    first, second = admission.enter(caller), admission.enter(caller)
    with pytest.raises(PolicyLimitReached):
        admission.enter(caller)
    first.leave()
    admission.enter(caller)
    second.leave()
    admission.enter(caller)


def test_who_has_run_nothing_for_a_minute_takes_no_memory(clock: Clock) -> None:
    admission, limited = Admission(clock), policy(max_executions_per_minute=1)
    for number in range(5000):
        admission.enter(bearer((f"t{number}", limited))).leave()
        clock.now += 0.1
    assert len(vars(admission)["_accepted_at"]) < 2000
    with pytest.raises(PolicyLimitReached):  # who has is remembered
        admission.enter(bearer(("t4999", limited)))


def test_the_minute_slides(clock: Clock) -> None:
    admission, caller = Admission(clock), bearer(("a", policy(max_executions_per_minute=2)))
    admission.enter(caller)
    clock.now += 20
    admission.enter(caller)
    with pytest.raises(PolicyLimitReached) as raised:
        admission.enter(caller)
    assert raised.value.retry_after_seconds == pytest.approx(40)
    clock.now += 39.9
    with pytest.raises(PolicyLimitReached):
        admission.enter(caller)
    clock.now += 0.1
    admission.enter(caller)
    with pytest.raises(PolicyLimitReached) as raised:
        admission.enter(caller)
    assert raised.value.retry_after_seconds == pytest.approx(20)


def test_children_count_against_their_parent_and_strangers_do_not() -> None:
    admission, tight = Admission(), policy(max_open_executions=2, max_sessions=2)
    parent = ("a", tight)
    one, two = bearer(parent, ("b", policy())), bearer(parent, ("c", policy()))
    stranger = bearer(("ab", policy()))
    admission.enter(stranger)
    admission.enter(one)
    admission.enter(two)
    for caller in (one, two, bearer(parent)):
        with pytest.raises(PolicyLimitReached):
            admission.enter(caller)
        with pytest.raises(PolicyLimitReached):
            admission.check_session(caller, [one.principal, two.principal])
        admission.check_session(caller, [one.principal, stranger.principal, "owner"])


def test_a_refused_one_counts_for_nobody(clock: Clock) -> None:
    admission = Admission(clock)
    parent = ("a", policy(max_executions_per_minute=2))
    child = bearer(parent, ("b", policy(max_executions_per_minute=1)))
    admission.enter(child)
    for _ in range(5):
        with pytest.raises(PolicyLimitReached):
            admission.enter(child)
    admission.enter(bearer(parent))


def test_what_is_withdrawn_was_never_there(clock: Clock) -> None:
    limits = policy(max_open_executions=1, max_executions_per_minute=1)
    admission, caller = Admission(clock), bearer(("a", limits), ("b", limits))
    admission.enter(caller).withdraw()
    admission.enter(caller)


@pytest.mark.parametrize("later", ["forgotten", "a minute later"])
def test_it_can_be_withdrawn_late(clock: Clock, later: str) -> None:
    """Its token may have ended, or a slow disk have taken its time, while it was being recorded."""
    admission, caller = Admission(clock), bearer(("a", policy(max_executions_per_minute=5, max_open_executions=2)))
    ticket = admission.enter(caller)
    if later == "forgotten":
        admission.forget(caller.principal)
    else:
        clock.now += 61
        admission.enter(caller).leave()
    ticket.withdraw()
    admission.enter(caller)
    admission.enter(caller)


@given(st.lists(st.sampled_from(["enter", "leave", "withdraw", "wait"]), max_size=60))
def test_no_order_of_things_passes_a_number(steps: list[str]) -> None:
    clock = Clock()
    admission, caller = Admission(clock), bearer(("a", policy(max_open_executions=3, max_executions_per_minute=5)))
    tickets: list[Ticket] = []
    accepted: list[float] = []
    for step in steps:
        if step == "enter":
            try:
                tickets.append(admission.enter(caller))
            except PolicyLimitReached:
                assert len(tickets) == 3 or len([at for at in accepted if at > clock.now - 60]) == 5
                continue
            accepted.append(clock.now)
            assert len(tickets) <= 3
            assert len([at for at in accepted if at > clock.now - 60]) <= 5
        elif step == "leave" and tickets:
            tickets.pop(0).leave()
        elif step == "withdraw" and tickets and accepted[-1] == clock.now:
            tickets.pop().withdraw()
            accepted.pop()
        elif step == "wait":
            clock.now += 11.0


def test_streams_of_a_token_and_its_children_count_together() -> None:
    admission = Admission()
    root, child = bearer(("a", policy(max_streams=3))), bearer(("a", policy(max_streams=3)), ("b", policy()))
    ends = [admission.enter_stream(who) for who in (root, child, child)]
    for who in (root, child):
        with pytest.raises(PolicyLimitReached, match="max_streams"):
            admission.enter_stream(who)
    admission.enter_stream(bearer(("other", policy(max_streams=1))))
    for _ in range(1000):
        admission.enter_stream(owner())
    for _ in range(2):  # the second time does nothing
        ends[1]()
    ends[1] = admission.enter_stream(root)
    with pytest.raises(PolicyLimitReached):
        admission.enter_stream(child)
    for end in ends:
        end()
    assert list(admission._streams) == ["token:other"]
