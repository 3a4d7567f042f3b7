"""Network rules: hosts, ports and paths that a policy allows, and how they are written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from .addresses import Address, Network, special_range, unwrap_mapped
from .url_paths import PathError, canonical_path

Host = str | Address
WEB_PORTS = frozenset({80, 443})
MAX_RULES = 500
SCHEME_PORTS = {"http": 80, "https": 443}
_METHOD = re.compile(r"[A-Z]{1,20}|\*")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# Systems read such a last label as a part of an IPv4 address: 127.1, 0x7f.1, 2130706433.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_STARS = 8
_NO_INDEX = (
    "; pip has no index configured, so name its hosts in ExecEngine.network_sets: "
    "{'packages': ['INDEX_HOST', 'FILES_HOST']}"
)
_MAX_HOST_LENGTH = 253


class RuleError(ValueError):
    """A rule, or a host in a request, that is not written as it must be."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that a policy allows; made by `parse_rule`.

    Parameters
    ----------
    text : str
        The rule as it was written.
    host : str, IPv4Network or IPv6Network
        A name, ``*.`` and a name, or addresses.
    ports : frozenset of int
        Allowed ports.
    scheme : str, optional
        ``http`` or ``https`` of a rule with a path.
    method : str
        Method of a rule with a path; ``*`` for all.
    path : str
        Pattern of a rule with a path.
    """

    text: str
    host: str | Network
    ports: frozenset[int] = WEB_PORTS
    scheme: str | None = None
    method: str = "*"
    path: str = "*"

    def matches_host(self, host: Host, port: int) -> bool:
        """Return whether the rule names a host and port; special addresses only if it names their very range."""
        if port not in self.ports:
            return False
        if isinstance(self.host, str):
            if self.host.startswith("*."):
                return isinstance(host, str) and host.endswith(self.host[1:])
            return host == self.host
        if isinstance(host, str) or host.version != self.host.version or host not in self.host:
            return False
        special = special_range(host)
        return special is None or self.host.subnet_of(special)  # type: ignore[arg-type]  # the versions are equal


def parse_host(text: str) -> Host:
    """Return a host in its canonical form.

    Parameters
    ----------
    text : str
        A name in ASCII, an IPv4 address with four decimal numbers, or an IPv6 address, also in brackets.

    Returns
    -------
    str, IPv4Address or IPv6Address
        The name in lower case, or the address. IPv4-mapped addresses become the IPv4 address in them.

    Raises
    ------
    RuleError
        If it is written in any other way.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        if "%" not in bare and ("]" not in text or ":" in bare):
            return unwrap_mapped(ip_address(bare))
    except ValueError:
        pass  # then it must be a name
    name = text.lower()
    labels = name.split(".")
    if name.endswith("."):
        raise RuleError(f"host {text[:80]!r} ends with a dot; leave the dot out")
    if len(name) > _MAX_HOST_LENGTH or not name.isascii() or not all(_LABEL.fullmatch(label) for label in labels):
        raise RuleError(f"{text[:80]!r} is not the name of a host; write its letters, digits, dots and hyphens only")
    if _NUMBER.fullmatch(labels[-1]):
        raise RuleError(f"{text[:80]!r} is an unusual form of an address; write it as four decimal numbers")
    return name


def parse_authority(text: str, default_port: int | None = None) -> tuple[Host, int]:
    """Return host and port of a request's ``host:port``.

    Raises
    ------
    RuleError
        If the host is not acceptable, or there is no port and no default.
    """
    host, port = split_port(text, text)
    if port is None and default_port is None:
        raise RuleError(f"{text[:80]!r} has no port")
    return parse_host(host), port or default_port or 0


def parse_rules(texts: Iterable[str], named_sets: Mapping[str, Sequence[str]] | None = None) -> tuple[Rule, ...]:
    """Return rules, with named sets in the place of their names.

    Parameters
    ----------
    texts : iterable of str
        Rules, and names of sets with an ``@`` before them.
    named_sets : mapping of str to sequence of str, optional
        Rules of each named set, by its name without the ``@``.

    Returns
    -------
    tuple of Rule
        Each rule once.

    Raises
    ------
    RuleError
        If a rule is not written as it must be, there is no such set, or there are too many rules.
    """
    found: dict[str, Rule] = {}
    sets = {} if named_sets is None else named_sets
    for text in texts:
        if text.startswith("@"):
            try:
                found.update((inner, parse_rule(inner)) for inner in sets[text[1:]])
            except KeyError:
                known = ", ".join(f"@{name}" for name in sorted(sets)) or "none"
                remedy = _NO_INDEX if text == "@packages" else ""
                raise RuleError(
                    f"there is no set of rules {text[:80]!r}; the configuration has: {known}{remedy}"
                ) from None
        else:
            found[text] = parse_rule(text)
    if len(found) > MAX_RULES:
        raise RuleError(f"a policy has {len(found)} network rules; the limit is {MAX_RULES}")
    return tuple(found.values())


def parse_rule(text: str) -> Rule:
    """Return a rule.

    Parameters
    ----------
    text : str
        ``host``, ``host:port``, ``*.domain``, ``10.1.2.0/24:5432`` or ``GET https://host/path/*``.

    Returns
    -------
    Rule
        What it allows. Without a port, these are the ports 80 and 443.

    Raises
    ------
    RuleError
        If it is not written as it must be; the message has the remedy.
    """
    if not text or text != text.strip() or not text.isprintable():
        raise RuleError(f"rule {text[:80]!r} is empty or has spaces around it; write a host, such as 'example.com'")
    if "://" in text:
        return _parse_url_rule(text)
    if "/" in text and not re.match(r"\[?[0-9a-fA-F:.]+\]?/", text):
        raise RuleError(f"rule {text[:80]!r} has a path but no scheme; write it as 'https://host/path/*'")
    host, port = split_port(text, text)
    return Rule(text, _parse_rule_host(host, text), WEB_PORTS if port is None else frozenset({port}))


def _parse_url_rule(text: str) -> Rule:
    method, _, url = text.rpartition(" ")
    scheme, _, rest = url.partition("://")
    if not _METHOD.fullmatch(method or "*"):
        raise RuleError(f"rule {text[:80]!r} has the method {method!r}; write it in capitals, or * for all")
    if scheme not in SCHEME_PORTS:
        raise RuleError(f"rule {text[:80]!r} has the scheme {scheme!r}; write http or https")
    authority, slash, path = rest.partition("/")
    if not slash or "?" in path or "#" in path or path.count("*") > _MAX_STARS:
        raise RuleError(f"rule {text[:80]!r} needs a path without a query, such as '/*', with at most 8 stars")
    if "@" in authority:
        raise RuleError(f"rule {text[:80]!r} has a user name; leave it out")
    try:
        if canonical_path("/" + path) != "/" + path:
            raise RuleError(f"rule {text[:80]!r} has a path that is not canonical; write {canonical_path('/' + path)}")
    except PathError as error:
        raise RuleError(f"rule {text[:80]!r}: {error}") from error
    host, port = split_port(authority, text)
    ports = frozenset({port or SCHEME_PORTS[scheme]})
    return Rule(text, _parse_rule_host(host, text), ports, scheme, method or "*", "/" + path)


def _parse_rule_host(host: str, text: str) -> str | Network:
    bare = host.replace("[", "", 1).replace("]", "", 1) if host.startswith("[") else host
    if "/" in bare or ":" in bare:
        try:
            network = ip_network(bare)
        except ValueError as error:
            raise RuleError(f"rule {text[:80]!r}: {error}; write a range as 10.1.2.0/24") from error
        if network.version == 6 and network.network_address.ipv4_mapped is not None:
            raise RuleError(f"rule {text[:80]!r} has an IPv4-mapped address; write the IPv4 address")
        return network
    wildcard, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
    if "*" in name:
        raise RuleError(f"rule {text[:80]!r} has a star inside of a name; write '*.' before a domain, or name the host")
    parsed = parse_host(_to_ascii(name, text))
    if not isinstance(parsed, str):
        if wildcard:
            raise RuleError(f"rule {text[:80]!r} has a star before an address; write a range as 10.1.2.0/24")
        return ip_network(parsed)
    if wildcard and "." not in parsed:
        raise RuleError(f"rule {text[:80]!r} would allow a whole top-level domain; name a domain in it")
    return wildcard + parsed


def _to_ascii(name: str, text: str) -> str:
    if name.isascii():
        return name
    try:
        encoded = name.lower().encode("idna").decode("ascii")
        if encoded.encode("ascii").decode("idna") == name.lower():
            return encoded
    except UnicodeError:
        pass  # the same remedy as for a name that IDNA 2003 and 2008 encode in different ways
    raise RuleError(f"rule {text[:80]!r} has a name that can be encoded in several ways; write its xn-- form")


def split_port(text: str, whole: str) -> tuple[str, int | None]:
    """Split ``host:port``; brackets are needed around an IPv6 address, and kept."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return text, None
    if ":" in host and not host.startswith("["):
        raise RuleError(f"{whole[:80]!r} has an IPv6 address without brackets; write it as [2001:db8::1]:443")
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise RuleError(f"{whole[:80]!r} has the port {port[:20]!r}; write a number from 1 to 65535")
    return host, int(port)
