from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.auth.approval_patterns import ApprovalRule
from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.auth.configured_policies import configured_policies
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import narrowed, policy_to_json, read_limits, read_policies
from jupyter_exec_ext.errors import InvalidRequest, PoliciesInvalid, TokenTooBroad

COUNTS = [
    "max_sessions",
    "max_open_executions",
    "max_executions_per_minute",
    "max_checkpoint_memory_bytes",
    "max_cpu_seconds",
    "max_memory_bytes",
    "max_output_bytes",
    "max_code_bytes",
]
MAY_BE_ZERO = ["max_ports", "max_checkpoints", "max_file_bytes", "max_session_bytes", "max_session_files"]
SECONDS = ["max_execution_seconds", "max_queue_seconds", "max_idle_seconds", "max_session_seconds"]


# --- the configuration ---


def test_the_built_in_policies_are_always_there() -> None:
    assert read_policies({}) == BUILT_IN


def test_a_policy_builds_on_another_one() -> None:
    policies = read_policies(
        {"mine": {"max_sessions": 2}, "tight": {"base": "restricted", "env": ["A"]}, "trusted": {"max_sessions": 9}}
    )
    assert policies["mine"] == Policy(name="mine", max_sessions=2)
    assert policies["tight"].isolation == "sandbox"
    assert policies["tight"].env == ("A",)
    assert policies["trusted"].max_code_bytes is None  # it builds on the one that it replaces
    assert policies["trusted"].max_sessions == 9
    assert BUILT_IN["trusted"].max_sessions is None


@pytest.mark.parametrize("base", ["nope", "mine", "", None, 1, [], {}])
def test_an_unknown_base_is_refused(base: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"policy 'mine': 'base' must be one of default, trusted, restricted"):
        read_policies({"mine": {"base": base}})


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "-a", "a" * 65, "a\n", "ä", 1, None])
def test_a_name_is_letters_digits_and_a_few_marks(name: Any) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a policy"):
        read_policies({name: {}})


@pytest.mark.parametrize("data", [None, 1, [], "x"])
def test_a_policy_is_an_object(data: Any) -> None:
    with pytest.raises(InvalidRequest, match="policy 'mine': must be an object"):
        read_policies({"mine": data})


@pytest.mark.parametrize(
    ("field", "hint"), [("max_session", "did you mean 'max_sessions'"), ("xyz", "there are"), ("name", "unknown field")]
)
def test_an_unknown_field_is_refused(field: str, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        read_policies({"mine": {field: 1}})


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("timeout", "unknown field 'timeout'; did you mean 'timeout_seconds'?"),
        ("who", "unknown field 'who'; there are when, modules, pattern, timeout_seconds"),
    ],
)
def test_unknown_field_of_approval_is_refused_with_the_nearest_one(field: str, hint: str) -> None:
    rule = {"when": ["shell"], field: 60}
    with pytest.raises(InvalidRequest, match=re.escape(f"policy 'mine': 'approval': {hint}")):
        read_policies({"mine": {"approval": rule}})
    with pytest.raises(InvalidRequest, match=re.escape(f"'limits': 'approval': {hint}")):
        read_limits({"approval": rule}, Policy())


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        *((name, [1, 3.0, 2**53, None], [0, -1, 1.5, True, "1", 2**54, []]) for name in COUNTS),
        *((name, [0, 1, None], [-1, 0.5, False, "1", {}]) for name in MAY_BE_ZERO),
        *((name, [0.001, 1, 1e9, None], [0, -1, True, "1", 2e9, float("nan"), float("inf")]) for name in SECONDS),
        ("kernelspecs", [[], ["*"], ["a"] * 100], [None, "*", ["a"] * 101, [""], [1], ["a" * 257]]),
        ("env", [[], ["A_*"]], [None, "A", [None], {"A": 1}]),
        ("isolation", ["none", "sandbox", "remote"], ["None", "", None, 1, ["none"]]),
        ("attach", [True, False], [1, "true", None]),
        (
            "approval",
            [
                "never",
                "always",
                {},
                {"when": "never"},
                {"when": ["shell", "imports"], "modules": ["os"], "timeout_seconds": 5},
                {"when": ["pattern"], "pattern": "a+"},
            ],
            [
                None,
                True,
                "sometimes",
                [],
                {"when": []},
                {"when": ["nope"]},
                {"when": [["shell"]]},
                {"when": ["shell"] * 2},
                {"when": "shell"},
                {"who": "me"},
                {"timeout_seconds": None},
                {"timeout_seconds": 0},
                {"when": ["pattern"]},
                {"when": ["pattern"], "pattern": "("},
                {"when": ["pattern"], "pattern": "a{4294967295}"},
                {"when": ["pattern"], "pattern": "a" * 257},
                {"when": ["pattern"], "pattern": 1},
                {"when": ["imports"], "modules": "os"},
            ],
        ),
    ],
)
def test_the_values_of_each_field(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        policy = narrowed(BUILT_IN["trusted"], {field: value})
        assert narrowed(BUILT_IN["restricted"], {field: policy_to_json(policy)[field]}) is not None
    for value in bad:
        with pytest.raises(InvalidRequest, match=f"'({field}|timeout_seconds|modules)'"):
            narrowed(BUILT_IN["trusted"], {field: value})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*COUNTS, *MAY_BE_ZERO, *SECONDS, "approval", "env", "attach", "x"]), values))
def test_whatever_is_sent_is_read_or_refused(data: dict[str, Any]) -> None:
    for read in (lambda: read_policies({"mine": data}), lambda: read_limits(data, BUILT_IN["default"])):
        with suppress(InvalidRequest, TokenTooBroad):
            read()


def test_a_policy_is_written_as_it_is_read() -> None:
    rules: list[Any] = ["never", "always", {"when": ["shell"], "timeout_seconds": 5.0}, {"when": "always"}]
    for rule in rules:
        policy = read_policies({"mine": {"base": "restricted", "approval": rule}})["mine"]
        data = policy_to_json(policy)
        json.dumps(data)
        assert read_policies({data.pop("name"): data})["mine"] == policy


# --- narrowing ---


@pytest.mark.parametrize("field", [*COUNTS, *MAY_BE_ZERO, *SECONDS])
def test_a_number_may_be_lowered_not_raised(field: str) -> None:
    outer = narrowed(BUILT_IN["trusted"], {field: 10})
    for value in (1, 10):
        assert getattr(read_limits({field: value}, outer), field) == value
    for more in (11, None):
        with pytest.raises(TokenTooBroad, match=f"'{field}'.*10"):
            read_limits({field: more}, outer)
    assert getattr(read_limits({field: 10**6}, BUILT_IN["trusted"]), field) == 10**6


@pytest.mark.parametrize(
    ("outer", "inner", "fine"),
    [
        (["*"], ["anything", "a*"], True),
        (["a*"], ["ab", "a*"], True),
        (["a*"], [], True),
        (["a*"], ["b"], False),
        (["a*"], ["ab", "b"], False),
        (["a*"], ["*"], False),
        (["a*"], ["ab*"], False),  # narrower, and not worth an algebra of patterns
        ([], ["a"], False),
    ],
)
def test_patterns_may_be_narrowed(outer: list[str], inner: list[str], fine: bool) -> None:
    for field in ("kernelspecs", "env"):
        policy = narrowed(Policy(), {field: outer})
        if fine:
            assert getattr(read_limits({field: inner}, policy), field) == tuple(inner)
        else:
            with pytest.raises(TokenTooBroad):
                read_limits({field: inner}, policy)


def test_isolation_may_rise_and_attaching_be_given_up() -> None:
    assert read_limits({"isolation": "remote"}, Policy(isolation="sandbox")).isolation == "remote"
    with pytest.raises(TokenTooBroad):
        read_limits({"isolation": "none"}, Policy(isolation="sandbox"))
    assert read_limits({"attach": False}, Policy(attach=True)).attach is False
    with pytest.raises(TokenTooBroad):
        read_limits({"attach": True}, Policy(attach=False))


@pytest.mark.parametrize("limits", [None, [], "x", 1])
def test_limits_are_an_object(limits: Any) -> None:
    with pytest.raises(InvalidRequest, match="'limits' must be an object"):
        read_limits(limits, Policy())


@pytest.mark.parametrize("limits", [{"name": "trusted"}, {"base": "trusted"}, {"max_session": 1}])
def test_limits_know_only_fields_of_a_policy(limits: Any) -> None:
    with pytest.raises(InvalidRequest, match="'limits': unknown field"):
        read_limits(limits, Policy())


def test_no_name_takes_long_to_refuse() -> None:
    began = time.process_time()
    with pytest.raises(InvalidRequest, match="unknown field"):
        read_limits({"a" * 8 * 1024**2: 1}, Policy())
    assert time.process_time() - began < 0.2


def test_a_token_brings_no_regular_expression_of_its_own() -> None:
    """One such as `(a+)+$` would hold up the whole server for as long as its creator likes."""
    rule = {"when": ["pattern"], "pattern": "(a+)+$"}
    not_searched, not_compiled = {"when": ["shell"], "pattern": "a"}, {"when": ["pattern"], "pattern": "a{4294967295}"}
    for brought in (rule, not_searched, not_compiled):
        with pytest.raises(InvalidRequest, match="only in a policy that is configured"):
            read_limits({"approval": brought}, Policy())
    configured = narrowed(Policy(), {"approval": rule})
    assert read_limits({"max_sessions": 1}, configured).approval == configured.approval
    assert read_limits({"approval": {"when": ["shell"]}}, configured).approval == ApprovalRule("matching", ("shell",))


# --- files ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.toml", '[mine]\nmax_sessions = 2\nenv = ["A"]\n[mine.approval]\nwhen = ["shell"]\n'),
        ("p.json", '{"mine": {"max_sessions": 2, "env": ["A"], "approval": {"when": ["shell"]}}}'),
    ],
)
def test_a_file_holds_policies(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    mine = configured_policies({}, str(path))["mine"]
    assert (mine.name, mine.max_sessions, mine.env, mine.approval.when) == ("mine", 2, ("A",), ("shell",))
    assert configured_policies({"mine": {"max_sessions": 3}}, str(path))["mine"].max_sessions == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.toml", b"[mine\n"),
        ("p.toml", b'{"mine": {}}'),
        ("p.json", b"[mine]\n"),
        ("p.json", b"[]"),
        ("p.json", b"\xff\xfe"),
        ("p.json", b"[" * 100_000),
        ("p.json", b""),
        ("missing.toml", None),
        ("p.toml", b"max_sessions = 2\n"),
        ("p.toml", b"[mine]\nmax_session = 2\n"),
        ("p.toml", b"[mine]\nmax_sessions = 2026-01-01\n"),
    ],
)
def test_file_with_mistake_is_invalid_and_named_without_directory(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PoliciesInvalid, match=rf"^{re.escape(name)}: ") as caught:
        configured_policies({}, str(path))
    message = caught.value.message
    assert "\n" not in message
    assert str(tmp_path) not in message
    assert "Errno" not in message


@pytest.mark.parametrize(
    ("configured", "offered", "message"),
    [
        ({"mine": {"max_session": 1}}, "*", "ExecEngine.policies: policy 'mine': unknown field 'max_session'; did you"),
        ({}, "defalt", "ExecEngine.offered_policies: unknown policy 'defalt'; did you mean 'default'?"),
    ],
)
def test_mistake_in_configuration_is_invalid_and_names_its_setting(
    configured: dict[str, object], offered: str, message: str
) -> None:
    with pytest.raises(PoliciesInvalid) as caught:
        configured_policies(configured, "", [offered])
    assert caught.value.message.startswith(message)


def test_configured_policy_replaces_that_of_file_and_other_policies_of_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("[default]\nmax_sessions = 2\n[mine]\nmax_sessions = 3\n")
    known = configured_policies({"mine": {"max_sessions": 4}}, str(path))
    assert (known["default"].max_sessions, known["mine"].max_sessions) == (2, 4)
    assert list(known) == ["default", "trusted", "restricted", "mine"]
