"""Network rules of a caller: what its policies, all together, let a session's programs reach."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...auth.policy import Policy, least
from ...auth.policy_narrowing import HOST_NETWORK
from ...errors import InvalidRequest, PolicyDenied
from ...isolation.network.access_decision import NetworkAccess, RuleSet, Target, decide
from ...isolation.network.control_messages import NetworkRequest
from ...isolation.network.rules import RuleError, parse_host, parse_rule, parse_rules
from ...protocol.request_parsing import MAX_RULE_CHARACTERS


def has_rules(policies: Iterable[Policy]) -> bool:
    """Return whether sessions under all of these policies have network rules, as `access_within` gives them."""
    networks = [policy.network for policy in policies if policy.network != HOST_NETWORK]
    return bool(networks) and all(isinstance(network, tuple) for network in networks)


async def load_access(policies: Iterable[Policy], named_sets: Mapping[str, Sequence[str]]) -> NetworkAccess | None:
    """Return what `access_within` returns, without blocking the event loop.

    The set ``packages`` can need a run of pip. The server's start has done it for the policies, but not for the limits
    of a token that name the set although its policy does not any more.

    Raises
    ------
    PolicyDenied
        If the limits of a token name a set that is not configured any more.
    """
    policies = list(policies)
    if not has_rules(policies):
        return None
    try:
        return await asyncio.to_thread(access_within, policies, named_sets)
    except RuleError as error:
        raise PolicyDenied(f"the token's network rules cannot hold: {error}; ask for another token") from None


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
