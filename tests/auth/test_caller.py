from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.auth.caller import OWNER, Bound, Caller, is_within, owner, token_principal
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.scopes import ALL_SCOPES

ids = st.lists(st.text("ab0", min_size=1, max_size=3), min_size=1, max_size=4).map(tuple)


@given(ids, ids)
def test_within_is_the_tree_of_creation_and_nothing_else(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """An id that begins like another one (`ab` and `abc`) is no way into its place."""
    assert is_within(token_principal(one), token_principal(other)) is (one[: len(other)] == other)


def test_a_token_sees_its_own_and_what_is_below() -> None:
    parent, child = Caller(token_principal(("aaaaaaaa",))), Caller(token_principal(("aaaaaaaa", "bbbbbbbb")))
    stranger = Caller(token_principal(("aaaaaaaaX",)))
    assert parent.may_see(parent.principal)
    assert parent.may_see(child.principal)
    assert not child.may_see(parent.principal)
    assert not stranger.may_see(parent.principal)
    assert not parent.may_see(stranger.principal)
    assert not parent.may_see(OWNER)
    assert not child.may_see(OWNER)


def test_no_principal_of_a_token_is_the_owners() -> None:
    assert not Caller(token_principal((OWNER,))).is_owner
    assert not Caller(token_principal(("",))).may_see(OWNER)


def test_the_owner_sees_everything_and_is_bound_by_nothing() -> None:
    caller = owner("Ada", {"username": "ada"})
    assert caller.is_owner
    assert caller.token_id is None
    assert list(caller.policies) == []
    assert caller.scopes == ALL_SCOPES
    for principal in (OWNER, token_principal(("aaaaaaaa",)), token_principal(("aaaaaaaa", "bbbbbbbb"))):
        assert caller.may_see(principal)


def test_a_tokens_id_is_the_last_of_its_chain() -> None:
    assert Caller(token_principal(("aaaaaaaa",))).token_id == "aaaaaaaa"
    assert Caller(token_principal(("aaaaaaaa", "bbbbbbbb"))).token_id == "bbbbbbbb"


def test_a_bound_covers_what_is_counted_together() -> None:
    bound = Bound(token_principal(("aaaaaaaa",)), Policy())
    assert bound.covers(token_principal(("aaaaaaaa", "bbbbbbbb", "cccccccc")))
    assert not bound.covers(token_principal(("aaaaaaaab",)))
    assert not bound.covers(OWNER)
