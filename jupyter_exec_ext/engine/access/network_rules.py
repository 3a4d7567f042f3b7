"""Network rules of a caller: what its policies, all together, let a session's programs reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...auth.policy import Policy, least
from ...auth.policy_narrowing import HOST_NETWORK
from ...errors import InvalidRequest
from ...isolation.network.control_messages import NetworkRequest
from ...isolation.network.network_access import NetworkAccess, RuleSet, Target, decide
from ...isolation.network.rules import RuleError, parse_host, parse_rule, parse_rules
from ...protocol.request_parsing import MAX_RULE_CHARACTERS


def access_within(policies: Iterable[Policy], named_sets: Mapping[str, Sequence[str]]) -> NetworkAccess | None:
    """Return what sessions reach under all of these policies; None if there are no rules for it.

    One policy with `none`, or without the field, leaves a session no network. `host` restricts nothing.
    """
    rule_sets: dict[RuleSet, None] = {}  # in order, and each once: limits of a token repeat its policy's rules
    policies = list(policies)
    for policy in policies:
        if isinstance(policy.network, tuple):
            rule_sets[RuleSet(policy.name, parse_rules(policy.network, named_sets))] = None
        elif policy.network != HOST_NETWORK:
            return None
    if not rule_sets:
        return None
    return NetworkAccess(tuple(rule_sets), least(policy.max_upload_bytes for policy in policies))


def with_rule(access: NetworkAccess, text: str) -> NetworkAccess:
    """Return the access with one rule more, in all of its sets.

    Raises
    ------
    InvalidRequest
        If the rule is not written as it must be.
    """
    try:
        rule = parse_rule(text)
    except RuleError as error:
        raise InvalidRequest(f"'rule': {error}") from None
    sets = (replace(rule_set, rules=(*rule_set.rules, rule)) for rule_set in access.rule_sets)
    return replace(access, rule_sets=tuple(sets))


def wanted_rule(access: NetworkAccess, request: NetworkRequest) -> str:
    """Return the narrowest rule that would allow a refused request; empty if no rule alone would do.

    A request to a host of which only some paths are allowed gets a rule with its path, any other one with its port.
    """
    try:
        host = parse_host(request.host)
    except RuleError:
        return ""
    rules = [rule for rule_set in access.rule_sets for rule in rule_set.rules if rule.matches_host(host, request.port)]
    scheme = next((rule.scheme for rule in rules if rule.scheme), None) if request.path else None
    target = Target(host, request.port, scheme, request.method, request.path)
    wanted = str(target) if scheme else _authority(target)
    # A star in the program's path must not become the rule's.
    has_star = scheme is not None and "*" in request.path
    is_wanted = request.verdict == "refused" and not has_star and len(wanted) <= MAX_RULE_CHARACTERS
    return wanted if is_wanted and not decide(access, target).is_allowed else ""


def _authority(target: Target) -> str:
    name = str(target.host)
    return f"[{name}]:{target.port}" if ":" in name else f"{name}:{target.port}"
