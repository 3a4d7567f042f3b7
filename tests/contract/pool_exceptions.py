"""Tests of the contract that a pool of servers cannot pass, each with its reason."""

from __future__ import annotations

_ATTACH = "Attaching to a kernel that somebody has started is a matter of one server."
_FEED = "The feed of changes is of one server."
_FIGURES = "The figures of a pool are for the Hub's administrators."
_MEMORY = "A pool asks its servers for their memory every other second, and they give what they measured last."
_OTHERS = "A pool has no other servers: a session on one that it does not know has ended."

#: Modules of which no test passes.
MODULES = {"test_attach": _ATTACH, "test_feed": _FEED}
#: By module and name of the test.
EXCEPTIONS = {
    "test_control::test_what_a_session_uses_is_told_where_it_can_be_known": _MEMORY,
    "test_server_state::test_load_has_the_sessions": _FIGURES,
    "test_server_state::test_session_of_another_server_is_refused_with_its_name": _OTHERS,
}
