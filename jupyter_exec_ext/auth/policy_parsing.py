"""Parser of policies in the configuration, and of a token's narrower limits in a request.

Both are objects with the field names of `Policy`. A missing field keeps the value of the base policy. Null removes a
limit; the server's own limits still apply.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from ..errors import InvalidRequest, TokenTooBroad
from ..isolation.network.rules import RuleError, parse_rules
from ..models import ISOLATION_LEVELS
from .approval_patterns import (
    ALWAYS,
    DEFAULT_TIMEOUT_SECONDS,
    MATCHING,
    MAX_MODULE_CHARACTERS,
    NEVER,
    TRIGGERS,
    ApprovalRule,
)
from .built_in_policies import BUILT_IN
from .path_grants import check_grants, read_devices, read_mounts
from .policy import Policy
from .policy_narrowing import FLAG_FIELDS, HOST_NETWORK, NO_NETWORK, PATTERN_FIELDS, exceeds

BASE_FIELD = "base"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Value of the field ``packages``.
PACKAGES_INSTALL = "install"
_APPROVAL_FIELDS = ("when", "modules", "pattern", "timeout_seconds")
# The types are strings because of `from __future__ import annotations`.
_SECONDS = tuple(f.name for f in fields(Policy) if f.type == "float | None")
_COUNTS = tuple(f.name for f in fields(Policy) if f.type == "int | None")
# A session without files is useful, but one without output or executions is not.
MAY_BE_ZERO = ("max_ports", "max_checkpoints", "max_file_bytes", "max_session_bytes", "max_session_files")
# Requests are checked against the lists of a token's policy and of all its ancestors' policies.
MAX_PATTERNS = 100
MAX_TEXT = MAX_MODULE_CHARACTERS
#: Names of secrets, which are names of environment variables, too; and how many a policy may have.
SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
MAX_POLICY_SECRETS = 16
# JSON parsers that read numbers as doubles are exact up to here.
MAX_COUNT = 2**53
MAX_SECONDS = 1e9


def read_policies(
    configured: Mapping[str, Any], network_sets: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Policy]:
    """Return the built-in policies and those of a configuration, which may replace built-in ones.

    Parameters
    ----------
    configured : mapping
        Policies by their names.
    network_sets : mapping, optional
        Named sets of network rules, by their names without the ``@``.

    Raises
    ------
    InvalidRequest
        If a policy is not valid; the message names the policy and the field.
    """
    policies = dict(BUILT_IN)
    for name, data in configured.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} cannot be the name of a policy: letters, digits, '.', '_' and '-' can")
        if not isinstance(data, Mapping):
            raise InvalidRequest(f"policy {name!r}: must be an object with the fields of a policy")
        try:
            policies[name] = replace(_read(_base(data, name), _without_base(data)), name=name)
            _check_network(policies[name], {} if network_sets is None else network_sets)
            policy = policies[name]
            check_grants(policy.mounts, policy.devices, policy.isolation)
        except InvalidRequest as error:
            raise InvalidRequest(f"policy {name!r}: {error.message}") from None
    return policies


def _base(data: Mapping[str, Any], name: str) -> Policy:
    # Only built-in policies can be a base, so the order of the configured ones has no effect.
    wanted = data.get(BASE_FIELD, name if name in BUILT_IN else "default")
    if not isinstance(wanted, str) or wanted not in BUILT_IN:
        raise InvalidRequest(f"{BASE_FIELD!r} must be one of {', '.join(BUILT_IN)}")
    return BUILT_IN[wanted]


def _without_base(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != BASE_FIELD}


def read_limits(limits: Any, outer: Policy) -> Policy:
    """Return the policy of a token with narrower limits than another policy.

    Parameters
    ----------
    limits : mapping
        Fields of `Policy`, as sent.
    outer : Policy
        The policy to narrow.

    Raises
    ------
    InvalidRequest
        If a field is not valid.
    TokenTooBroad
        If a field allows more than `outer`.
    """
    if not isinstance(limits, Mapping):
        raise InvalidRequest("'limits' must be an object with fields of a policy")
    approval = limits.get("approval")
    # Before the limits are read, which compiles the pattern.
    if isinstance(approval, Mapping) and "pattern" in approval:
        # The server's own process searches it, and a slow expression would block all requests.
        raise InvalidRequest("'limits': 'approval' may have a 'pattern' only in a policy that is configured")
    try:
        inner = narrowed(outer, limits)
    except InvalidRequest as error:
        raise InvalidRequest(f"'limits': {error.message}") from None
    for name in limits:
        if exceeds(name, getattr(inner, name), getattr(outer, name)):
            raise TokenTooBroad(
                f"'limits' has more for {name!r} than the policy {outer.name!r} allows: {policy_to_json(outer)[name]!r}"
            )
    return inner


def narrowed(policy: Policy, limits: Mapping[str, Any]) -> Policy:
    """Return a policy with the fields of `limits` instead of its own; raises `InvalidRequest`."""
    return _read(policy, limits)


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """Return a policy in the form of the configuration."""
    data = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(policy).items()}
    data["mounts"] = dict(policy.mounts)
    rule = policy.approval
    if rule.mode == MATCHING:
        data["approval"] = {
            "when": list(rule.when),
            "modules": list(rule.modules),
            "pattern": rule.pattern,
            "timeout_seconds": rule.timeout_seconds,
        }
    elif rule.mode == ALWAYS:
        data["approval"] = {"when": ALWAYS, "timeout_seconds": rule.timeout_seconds}
    else:
        data["approval"] = NEVER
    return data


# --- fields -------------------------------------------------------------------------------------


def _read(base: Policy, data: Mapping[str, Any]) -> Policy:
    known = [f.name for f in fields(Policy) if f.name != "name"]
    changes = {}
    for name, value in data.items():
        if name not in known:
            raise InvalidRequest(unknown_name("field", name, known))
        changes[name] = _reader(name)(name, value)
    return replace(base, **changes)


def unknown_name(noun: str, name: Any, known: Sequence[str]) -> str:
    """Return the message for a name that is not known, with the nearest one that is."""
    shown = str(name)[:64]  # a long name takes long to compare
    near = difflib.get_close_matches(shown, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"unknown {noun} {shown!r}; {hint}"


def _reader(name: str) -> Callable[[str, Any], Any]:
    if name in PATTERN_FIELDS:
        return _patterns
    if name in _SECONDS:
        return _seconds
    if name in _COUNTS:
        return _count
    if name in FLAG_FIELDS:
        return _flag
    readers = {"isolation": _isolation, "approval": _approval, "network": _network, "secrets": _secrets}
    return {**readers, "packages": _packages, "mounts": read_mounts, "devices": read_devices}[name]


def _patterns(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_PATTERNS or not all(map(_is_text, value)):
        raise InvalidRequest(f"{name!r} must be a list of at most {MAX_PATTERNS} names, with * as a wildcard")
    return tuple(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    # NaN fails the comparison, too.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SECONDS:
        raise InvalidRequest(f"{name!r} must be a number of seconds greater than 0, or null for no limit")
    return float(value)


def _count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    lowest = 0 if name in MAY_BE_ZERO else 1
    if isinstance(value, float) and value.is_integer():  # for JSON Schema, 3.0 is a whole number
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= MAX_COUNT:
        raise InvalidRequest(f"{name!r} must be a whole number, {lowest} or more, or null for no limit")
    return value


def _isolation(name: str, value: Any) -> str:
    if value not in ISOLATION_LEVELS:
        raise InvalidRequest(f"{name!r} must be one of {', '.join(ISOLATION_LEVELS)}")
    return str(value)


def _network(name: str, value: Any) -> str | tuple[str, ...] | None:
    if value is None or value in (NO_NETWORK, HOST_NETWORK):
        return value  # type: ignore[no-any-return]  # a list is equal to neither
    if not isinstance(value, (list, tuple)) or len(value) > MAX_PATTERNS or not all(map(_is_text, value)):
        raise InvalidRequest(f"{name!r} must be 'none', 'host' or a list of at most {MAX_PATTERNS} rules")
    return tuple(value)


def _secrets(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, (list, tuple)) and len(value) <= MAX_POLICY_SECRETS
    if not is_list or not all(isinstance(each, str) and SECRET_NAME.fullmatch(each) for each in value):
        raise InvalidRequest(
            f"{name!r} must be a list of at most {MAX_POLICY_SECRETS} names of secrets, such as 'API_TOKEN'"
        )
    return tuple(dict.fromkeys(value))


def _packages(name: str, value: Any) -> str | None:
    if value not in (None, PACKAGES_INSTALL):
        raise InvalidRequest(f"{name!r} must be {PACKAGES_INSTALL!r}, or null for no packages")
    return None if value is None else PACKAGES_INSTALL


def _check_network(policy: Policy, network_sets: Mapping[str, Sequence[str]]) -> None:
    """Check that a policy's isolation can hold its network rules, and that they are written as they must be."""
    network, isolation = policy.network, policy.isolation
    if network == HOST_NETWORK and isolation != "none":
        raise InvalidRequest(
            f"'network' is 'host', which leaves nothing of the isolation {isolation!r}; set 'isolation' to 'none'"
        )
    if network == NO_NETWORK and isolation == "none":
        raise InvalidRequest("'network' is 'none', which needs isolation; set 'isolation' to 'landlock' or 'sandbox'")
    if policy.secrets and not isinstance(network, tuple):
        raise InvalidRequest(
            f"'secrets' has {policy.secrets[0]!r}, which needs network rules; set 'network' to a list with its host"
        )
    if not isinstance(network, tuple):
        return
    if isolation != "sandbox":
        # Landlock knows ports but no addresses, and leaves UDP open. Kernels elsewhere have networks of their own.
        raise InvalidRequest(f"'network' has rules, which {isolation!r} cannot hold; set 'isolation' to 'sandbox'")
    try:
        parse_rules(network, network_sets)
    except RuleError as error:
        raise InvalidRequest(f"'network': {error}") from None


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name!r} must be true or false")
    return value


def _approval(name: str, value: Any) -> ApprovalRule:
    if value in (NEVER, ALWAYS):
        return ApprovalRule(value)
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"{name!r} must be 'never', 'always' or an object with 'when', 'modules', 'pattern' and 'timeout_seconds'"
        )
    for field in value:
        if field not in _APPROVAL_FIELDS:
            raise InvalidRequest(f"{name!r}: {unknown_name('field', field, _APPROVAL_FIELDS)}")
    timeout = _seconds("timeout_seconds", value.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS))
    if timeout is None:
        raise InvalidRequest(f"{name!r}: 'timeout_seconds' must be a number, so that nothing waits for ever")
    when = value.get("when", ALWAYS)
    if when in (NEVER, ALWAYS):
        return ApprovalRule(when, timeout_seconds=timeout)
    # As text, because items may be lists, which no set can hold.
    if not isinstance(when, (list, tuple)) or not when or not set(map(str, when)) <= set(TRIGGERS):
        raise InvalidRequest(f"{name!r}: 'when' must be 'never', 'always' or a list of {', '.join(TRIGGERS)}")
    if len(when) > len(set(when)):  # each searches all of the code
        raise InvalidRequest(f"{name!r}: 'when' names something twice")
    rule = ApprovalRule(MATCHING, tuple(when), _patterns("modules", value.get("modules", ())), "", timeout)
    return replace(rule, pattern=_pattern(name, value.get("pattern", ""))) if "pattern" in when else rule


def _pattern(name: str, value: Any) -> str:
    try:
        if not _is_text(value):
            raise ValueError(f"1 to {MAX_TEXT} characters are expected")
        re.compile(value)
    except (re.error, ValueError, OverflowError, RecursionError) as error:  # OverflowError: `a{4294967295}`
        raise InvalidRequest(f"{name!r}: 'pattern' is not a regular expression: {error}") from None
    return str(value)
