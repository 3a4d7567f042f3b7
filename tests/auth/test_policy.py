"""Every field of a policy: what it still lets pass, what it refuses, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from jupyter_exec_ext.auth.approval_patterns import ALWAYS, MATCHING, NO_APPROVAL, ApprovalRule
from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.auth.policy import (
    Policy,
    allowed_seconds,
    check_attach,
    check_checkpoint_count,
    check_checkpoint_memory,
    check_code,
    check_env,
    check_kernel,
    check_open_executions,
    check_packages,
    check_ports,
    check_rate,
    check_session_count,
    check_stored,
    check_streams,
    check_upload,
    least,
)
from jupyter_exec_ext.errors import ExecError, IsolationRequired, PolicyDenied, PolicyLimitReached

Check = Callable[[Policy], Any]


def check_kernels(policy: Policy, names: tuple[str, ...], levels: tuple[str, ...]) -> None:
    for name in names:
        for level in levels:
            check_kernel(policy, name, level)


ASKS = ApprovalRule("always")
# field: its value, what just passes, what is just refused, with which error
DECISIONS: dict[str, tuple[Any, Check, Check, type[ExecError]]] = {
    "kernelspecs": (
        ("python*", "ir"),
        lambda p: check_kernels(p, ("python3", "python", "ir"), ("none",)),
        lambda p: check_kernel(p, "irkernel", "none"),
        PolicyDenied,
    ),
    "isolation": (
        "sandbox",
        lambda p: check_kernels(p, ("x",), ("sandbox", "remote")),
        lambda p: check_kernel(p, "x", "none"),
        IsolationRequired,
    ),
    "max_sessions": (
        2,
        lambda p: check_session_count(p, 1),
        lambda p: check_session_count(p, 2),
        PolicyLimitReached,
    ),
    "max_open_executions": (
        3,
        lambda p: check_open_executions(p, 2),
        lambda p: check_open_executions(p, 3),
        PolicyLimitReached,
    ),
    "max_ports": (4, lambda p: check_ports(p, 3), lambda p: check_ports(p, 4), PolicyLimitReached),
    "max_checkpoints": (
        2,
        lambda p: check_checkpoint_count(p, 1),
        lambda p: check_checkpoint_count(p, 2),
        PolicyLimitReached,
    ),
    "max_checkpoint_memory_bytes": (
        100,
        lambda p: check_checkpoint_memory(p, 100),
        lambda p: check_checkpoint_memory(p, 101),
        PolicyLimitReached,
    ),
    "max_streams": (4, lambda p: check_streams(p, 3), lambda p: check_streams(p, 4), PolicyLimitReached),
    "max_executions_per_minute": (7, lambda p: check_rate(p, 0.0), lambda p: check_rate(p, 12.5), PolicyLimitReached),
    "max_execution_seconds": (
        10.0,
        lambda p: allowed_seconds(p, "max_execution_seconds", 10.0, 300.0),
        lambda p: allowed_seconds(p, "max_execution_seconds", 10.01, 300.0),
        PolicyDenied,
    ),
    "max_idle_seconds": (
        10.0,
        lambda p: allowed_seconds(p, "max_idle_seconds", 10.0, 300.0),
        lambda p: allowed_seconds(p, "max_idle_seconds", 0.0, 300.0),  # never
        PolicyDenied,
    ),
    "max_code_bytes": (100, lambda p: check_code(p, 100), lambda p: check_code(p, 101), PolicyDenied),
    "max_stored_bytes": (100, lambda p: check_stored(p, None), lambda p: check_stored(p, 100), PolicyLimitReached),
    "env": (
        ("MY_*", "LANG"),
        lambda p: check_env(p, ["MY_NAME", "MY_", "LANG"]),
        lambda p: check_env(p, ["MY_NAME", "LANGUAGE"]),
        PolicyDenied,
    ),
    "packages": (None, lambda p: check_packages(replace(p, packages="install")), check_packages, PolicyDenied),
    "attach": (False, lambda p: check_attach(BUILT_IN["trusted"]), check_attach, PolicyDenied),
    "unseen_uploads": (False, check_upload, lambda p: check_upload(replace(p, approval=ASKS)), PolicyDenied),
}
# These bound what runs or is stored; the engine keeps them, see tests/server/test_policies.py.
KEPT_BY_THE_ENGINE = {
    "max_queue_seconds",
    "max_cpu_seconds",
    "max_memory_bytes",
    "max_output_bytes",
    "max_file_bytes",
    "max_session_bytes",
    "max_session_files",
    "max_session_seconds",
    "approval",
    "approve_in_client",  # in tests/mcp/test_questions.py
    "allow_comms",  # in tests/standard_api
    "network",  # in tests/engine/access/test_network_rules.py
    "secrets",  # in tests/engine/access/test_secret_service.py
    "max_upload_bytes",  # in tests/isolation/network
    "mounts",  # in tests/server/test_grants.py
    "devices",  # in tests/server/test_grants.py
}


def test_there_is_a_test_for_every_field() -> None:
    assert DECISIONS.keys() | KEPT_BY_THE_ENGINE == {f.name for f in fields(Policy)} - {"name"}
    assert not DECISIONS.keys() & KEPT_BY_THE_ENGINE


@pytest.mark.parametrize("field", DECISIONS)
def test_just_within_passes_and_just_beyond_is_refused(field: str) -> None:
    value, within, beyond, error = DECISIONS[field]
    policy = Policy(**{"name": "mine", field: value})
    within(policy)
    with pytest.raises(error) as raised:
        beyond(policy)
    shown = list(value) if isinstance(value, tuple) else value
    assert raised.value.limit == {"policy": "mine", "name": field, "value": shown}
    assert "'mine'" in raised.value.message
    # Their values are no numbers or names that a person needs.
    if field not in ("attach", "isolation", "packages", "unseen_uploads"):
        assert field in raised.value.message
        for part in value if isinstance(value, tuple) else [value]:
            assert (f"{part:g}" if isinstance(part, float) else str(part)) in raised.value.message


@pytest.mark.parametrize("field", ["max_sessions", "max_open_executions", "max_streams", "max_code_bytes"])
def test_none_is_no_limit(field: str) -> None:
    _, _, beyond, _ = DECISIONS[field]
    no_limit: dict[str, Any] = {field: None}
    beyond(Policy(**no_limit))


def test_a_refusal_that_time_cures_says_when_to_come_back() -> None:
    waits = {"max_executions_per_minute": 12.5, "max_open_executions": 1.0, "max_streams": 1.0, "max_stored_bytes": 1.0}
    for field, seconds in waits.items():
        with pytest.raises(PolicyLimitReached) as raised:
            DECISIONS[field][2](Policy(**{field: DECISIONS[field][0]}))
        assert raised.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("most", "asked", "default", "expected"),
    [
        (None, None, 300.0, 300.0),
        (None, 0.0, 300.0, 0.0),
        (None, 1e9, 300.0, 1e9),
        (60.0, None, 300.0, 60.0),  # who names none gets what is allowed
        (60.0, None, 30.0, 30.0),
        (60.0, None, 0.0, 60.0),  # 0 is for ever
        (60.0, 60.0, 300.0, 60.0),
        (60.0, 0.1, 300.0, 0.1),
    ],
)
def test_seconds(most: float | None, asked: float | None, default: float, expected: float) -> None:
    assert allowed_seconds(Policy(max_execution_seconds=most), "max_execution_seconds", asked, default) == expected


def test_a_pattern_matches_the_whole_name_in_its_case() -> None:
    policy = Policy(kernelspecs=("python3",), env=("MY_*",))
    for name in ("python", "python3.11", "xpython3", "PYTHON3"):
        with pytest.raises(PolicyDenied):
            check_kernel(policy, name, "none")
    for name in ("my_x", "X_MY_X", "MY"):
        with pytest.raises(PolicyDenied):
            check_env(policy, [name])


@pytest.mark.parametrize("rule", [ApprovalRule(ALWAYS), ApprovalRule(MATCHING, ("shell",))])
def test_where_code_is_approved_no_pattern_lets_a_variable_in(rule: ApprovalRule) -> None:
    policy = Policy(env=("*", "MY_NAME"), approval=rule)
    check_env(policy, ["MY_NAME"])
    with pytest.raises(PolicyDenied, match="asks for approval"):
        check_env(policy, ["MY_NAME", "PYTHONWARNINGS"])
    check_env(replace(policy, approval=NO_APPROVAL), ["PYTHONWARNINGS"])


def test_no_pattern_matches_nothing() -> None:
    with pytest.raises(PolicyDenied, match="none"):
        check_env(Policy(env=()), ["X"])
    check_env(Policy(env=()), [])
    with pytest.raises(PolicyDenied):
        check_kernel(Policy(kernelspecs=()), "python3", "none")


def test_the_least_limit_counts() -> None:
    assert least([None, 3, 2, None]) == 2
    assert least([None, 0]) == 0
    assert least([None]) is None
    assert least([]) is None


def test_the_built_in_policies_are_what_their_names_say() -> None:
    default, trusted, restricted = (BUILT_IN[name] for name in ("default", "trusted", "restricted"))
    assert {policy.name for policy in BUILT_IN.values()} == set(BUILT_IN)
    for f in fields(Policy):
        if f.type in ("int | None", "float | None"):
            assert getattr(trusted, f.name) is None, f.name
            most = getattr(default, f.name)
            assert getattr(restricted, f.name) is not None, f.name
            assert most is None or getattr(restricted, f.name) <= most, f.name
    assert (restricted.isolation, restricted.env, restricted.attach) == ("sandbox", (), False)
