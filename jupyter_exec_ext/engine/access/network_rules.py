"""Network rules of a caller: what its policies, all together, let a session's programs reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...auth.policy import Policy, least
from ...auth.policy_parsing import HOST_NETWORK
from ...errors import InvalidRequest
from ...isolation.network.network_access import NetworkAccess, RuleSet
from ...isolation.network.rules import RuleError, parse_rule, parse_rules


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
