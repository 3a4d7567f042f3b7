"""Tests of the contract that a pool of servers cannot pass, each with its reason."""

from __future__ import annotations

_ATTACH = "Attaching to a kernel that somebody has started is a matter of one server."
_FEED = "The feed of changes is of one server."
_FIGURES = "The figures of a pool are for the Hub's administrators."
#: A reason of a test that may pass, too.
BY_LUCK = "A pool asks its servers for their memory every other second, and they give what they measured last."
_OTHERS = "A pool has no other servers: a session on one that it does not know has ended."

#: Modules of which no test passes.
MODULES = {"test_attach": _ATTACH}
#: By module and name of the test.
EXCEPTIONS = {
    "test_control::test_what_a_session_uses_is_told_where_it_can_be_known": BY_LUCK,
    "test_feed::test_what_happens_is_told_in_the_records_of_the_lists": _FEED,
    "test_feed::test_a_reader_goes_on_after_what_it_has": _FEED,
    "test_server_state::test_load_has_the_sessions": _FIGURES,
    "test_server_state::test_session_of_another_server_is_refused_with_its_name": _OTHERS,
}
