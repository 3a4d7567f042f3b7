"""Access of a session to the network, and the decision whether it allows a request. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .addresses import Address, special_range, unwrap_mapped
from .rules import SCHEME_PORTS, WEB_PORTS, Host, Rule, RuleError, parse_host, split_port
from .url_paths import glob_matches

_CONNECTION_HEADERS = ("connection", "content-length", "expect", "host", "transfer-encoding", "upgrade")


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules of one policy.

    Parameters
    ----------
    policy : str
        Its name, for messages.
    rules : tuple of Rule
        All that it allows.
    """

    policy: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class NetworkSecret:
    """A value that the proxy adds to requests, and that a kernel sees as a placeholder only.

    Parameters
    ----------
    name : str
        Name of the secret.
    placeholder : str
        Text that kernels send in its place; at least 16 characters.
    hosts : tuple of str
        Names of hosts that get the value, with ``:port`` unless it is 443.
    header : str
        Name of the header that carries it.
    template : str
        Value of that header, with ``{}`` for the secret.
    value : str
        The secret itself; at least 8 characters.
    """

    name: str
    placeholder: str
    hosts: tuple[str, ...]
    header: str
    template: str
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) < 8:
            raise RuleError(f"the value of secret {self.name!r} has fewer than 8 characters; use a longer one")
        if len(self.placeholder) < 16:
            raise RuleError(f"the placeholder of secret {self.name!r} has fewer than 16 characters")
        if not (self.value + self.placeholder + self.template).isascii() or not self.rendered(self.value).isprintable():
            raise RuleError(f"secret {self.name!r} has characters that a header cannot carry")
        is_header = re.fullmatch(r"[A-Za-z0-9-]+", self.header) and self.header.lower() not in _CONNECTION_HEADERS
        if self.template.count("{}") != 1 or not is_header:
            raise RuleError(f"secret {self.name!r} needs a header such as 'Authorization: Bearer {{}}'")
        for host in self.hosts:
            if parse_host(split_port(host, host)[0]) != split_port(host, host)[0]:
                raise RuleError(f"secret {self.name!r} is for {host!r}; name a host, in lower case")

    def rendered(self, value: str) -> str:
        """Return the header's value with a text in the place of ``{}``."""
        return self.template.replace("{}", value)

    def is_for(self, host: Host, port: int) -> bool:
        """Return whether requests to this host and port get the value."""
        return any(
            split_port(text, text) in ((host, port), (host, port if port != 443 else None)) for text in self.hosts
        )


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """All that decides about a session's requests.

    Parameters
    ----------
    rule_sets : tuple of RuleSet
        One for each policy of the token and its ancestors. Each of them must allow a request.
    max_upload_bytes : int, optional
        Bytes that the session may send in all; without a limit if None.
    secrets : tuple of NetworkSecret
        Secrets of the session.
    """

    rule_sets: tuple[RuleSet, ...]
    max_upload_bytes: int | None = None
    secrets: tuple[NetworkSecret, ...] = ()

    @property
    def needs_certificate(self) -> bool:
        """True if kernels must trust the server's certificate authority, since some hosts' TLS is terminated."""
        return bool(self.secrets) or any(rule.scheme == "https" for each in self.rule_sets for rule in each.rules)

    def has_secrets(self, secrets: Iterable[NetworkSecret]) -> bool:
        """Return whether the session has all of these secrets, with these values."""
        return all(secret in self.secrets for secret in secrets)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a request.

    Parameters
    ----------
    host : str, IPv4Address or IPv6Address
        Canonical host, from `parse_host`.
    port : int
        Port.
    scheme : str, optional
        ``http`` or ``https`` of a request that the proxy can read; None for a tunnel.
    method : str
        Its method.
    path : str
        Its canonical path.
    """

    host: Host
    port: int
    scheme: str | None = None
    method: str = ""
    path: str = ""

    @property
    def authority(self) -> str:
        """Host and port as in a URL, without the port that the scheme implies."""
        host = f"[{self.host}]" if not isinstance(self.host, str) and self.host.version == 6 else str(self.host)
        implied = (SCHEME_PORTS[self.scheme],) if self.scheme else tuple(WEB_PORTS)
        return host if self.port in implied else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.method} {self.scheme}://{self.authority}{self.path}" if self.scheme else f"host {self.authority}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision about a request.

    Parameters
    ----------
    rule : str
        The rule that allows it; empty if it is refused.
    reason : str
        Why it is refused, with the remedy; empty if it is allowed.
    must_terminate_tls : bool
        Whether a tunnel is allowed only if the proxy reads the requests in it, and decides about each.
    has_path : bool
        Whether a policy allows it by a rule with a path only.
    """

    rule: str = ""
    reason: str = ""
    must_terminate_tls: bool = False
    has_path: bool = False

    @property
    def is_allowed(self) -> bool:
        """True if the request may go on."""
        return not self.reason


def decide(access: NetworkAccess, target: Target) -> Verdict:
    """Decide about a request by the rules of all policies.

    Parameters
    ----------
    access : NetworkAccess
        Rules of the session.
    target : Target
        The request. Names are not resolved: `decide_address` decides about their addresses.

    Returns
    -------
    Verdict
        The first policy's rule, or the reason of the first policy that refuses.
    """
    rule, has_path, has_secret = "", False, any(secret.is_for(target.host, target.port) for secret in access.secrets)
    if not access.rule_sets:
        return Verdict(reason="no policy allows any host; ask for rules in the field network of a policy")
    for rule_set in access.rule_sets:
        here = [each for each in rule_set.rules if each.matches_host(target.host, target.port)]
        whole = next((each for each in here if each.scheme is None), None)
        matched = whole or next((each for each in here if _matches_request(each, target)), None)
        if matched is None:
            refused, wanted = (target, target) if here else (f"host {target.authority}", target.authority)
            return Verdict(reason=f"policy {rule_set.policy!r} does not allow {refused}; ask for the rule '{wanted}'")
        rule = rule or matched.text
        has_path = has_path or whole is None
    return Verdict(rule, must_terminate_tls=has_path or has_secret, has_path=has_path)


def decide_address(access: NetworkAccess, address: Address, port: int) -> str:
    """Return why a resolved address must not be connected to; an empty text if it may.

    Parameters
    ----------
    access : NetworkAccess
        Rules of the session.
    address : IPv4Address or IPv6Address
        Address that a name was resolved to.
    port : int
        Port.

    Returns
    -------
    str
        Empty for a public address, and for one that a rule of every policy names.
    """
    address = unwrap_mapped(address)
    if special_range(address) is None:
        return ""
    for rule_set in access.rule_sets:
        if not any(rule.matches_host(address, port) for rule in rule_set.rules):
            wanted = Target(address, port).authority
            return f"policy {rule_set.policy!r} does not allow {address}, not public; ask for the rule '{wanted}'"
    return ""


def _matches_request(rule: Rule, target: Target) -> bool:
    """Return whether a rule with a path allows a request. A tunnel is allowed, to be terminated."""
    if target.scheme is None:
        return True
    methods = (rule.method, "HEAD") if rule.method == "GET" else (rule.method,)
    return (
        rule.scheme == target.scheme
        and (rule.method == "*" or target.method in methods)
        and glob_matches(rule.path, target.path)
    )
