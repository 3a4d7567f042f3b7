"""Rules: how they are written, which hosts and requests they allow, and what a refusal says."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.isolation.network.access_decision import (
    NetworkAccess,
    NetworkSecret,
    RuleSet,
    Target,
    decide,
    decide_address,
)
from jupyter_exec_ext.isolation.network.control_messages import access_from_json, access_to_json
from jupyter_exec_ext.isolation.network.rules import (
    MAX_RULES,
    RuleError,
    parse_authority,
    parse_host,
    parse_rule,
    parse_rules,
)


def access_of(*rules: str, policy: str = "agents") -> NetworkAccess:
    return NetworkAccess((RuleSet(policy, parse_rules(rules)),))


def target_of(text: str) -> Target:
    """Return the target of ``host:port`` or ``METHOD scheme://host:port/path``."""
    if "://" not in text:
        return Target(*parse_authority(text))
    method, _, url = text.partition(" ")
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    return Target(*parse_authority(authority, {"http": 80, "https": 443}[scheme]), scheme, method, f"/{path}")


@pytest.mark.parametrize(
    ("rule", "targets"),
    [
        ("example.com", ["example.com:80", "EXAMPLE.com:443", "GET http://example.com/a", "PUT https://example.com/"]),
        ("example.com:8443", ["example.com:8443"]),
        ("*.example.com:443", ["a.example.com:443", "a.b.example.com:443"]),
        ("bücher.example", ["xn--bcher-kva.example:443"]),
        ("GET https://example.com/v1/*", ["GET https://example.com/v1/", "HEAD https://example.com/v1/a/b"]),
        ("https://example.com:8443/*", ["POST https://example.com:8443/x", "example.com:8443"]),
        ("* http://example.com/a*z", ["POST http://example.com/abcz", "GET http://example.com/az"]),
        ("10.1.2.0/24:5432", ["10.1.2.7:5432"]),
        ("10.1.2.3", ["10.1.2.3:80", "[::ffff:10.1.2.3]:443"]),
        ("8.0.0.0/8:53", ["8.8.8.8:53"]),
        ("[fd00::]/8:443", ["[fd00::5]:443"]),
        ("[fd00::5]:443", ["[fd00:0::5]:443"]),
        ("127.0.0.1:9", ["127.0.0.1:9"]),
        ("169.254.169.254:80", ["169.254.169.254:80"]),
    ],
)
def test_rule_allows(rule: str, targets: list[str]) -> None:
    for target in targets:
        assert decide(access_of(rule), target_of(target)).rule == rule, target


@pytest.mark.parametrize(
    ("rule", "targets"),
    [
        ("example.com", ["example.com:22", "a.example.com:443", "notexample.com:443", "93.184.215.14:443"]),
        ("example.com:8443", ["example.com:443"]),
        ("*.example.com", ["example.com:443", "notexample.com:443", "example.com.evil.org:443"]),
        (
            "GET https://example.com/v1/*",
            ["POST https://example.com/v1/a", "GET https://example.com/v2", "GET http://example.com/v1/a"],
        ),
        ("http://example.com/a*z", ["GET http://example.com/abc", "GET http://example.com/a"]),
        ("10.1.2.0/24:5432", ["10.1.3.1:5432", "10.1.2.1:443", "db.example.com:5432"]),
        ("0.0.0.0/0", ["10.0.0.1:80", "127.0.0.1:80", "169.254.169.254:80", "192.168.0.1:443"]),
        ("169.0.0.0/8", ["169.254.169.254:80"]),
        ("[::]/0", ["[::1]:80", "[fe80::1]:80", "[64:ff9b::10.0.0.1]:80", "[2002:0a00:0001::]:80", "[fd00::1]:443"]),
        ("10.0.0.0/8", ["[64:ff9b::10.0.0.1]:80"]),
    ],
)
def test_rule_does_not_allow(rule: str, targets: list[str]) -> None:
    for target in targets:
        assert not decide(access_of(rule), target_of(target)).is_allowed, target


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        ("", "write a host"),
        (" example.com", "spaces"),
        ("*", "star"),
        ("*.com", "top-level domain"),
        ("a*.example.com", "star"),
        ("*.10.0.0.1", "range"),
        ("example.com.", "leave the dot out"),
        ("example..com", "letters"),
        ("-a.example.com", "letters"),
        ("example.com:0", "1 to 65535"),
        ("example.com:99999", "1 to 65535"),
        ("example.com:https", "1 to 65535"),
        ("example.com/path", "https://host/path"),
        ("straße.example", "xn--"),
        ("127.1", "four decimal numbers"),
        ("0x7f.1", "four decimal numbers"),
        ("2130706433", "four decimal numbers"),
        ("0177.0.0.1", "four decimal numbers"),
        ("10.1.2.3/24", "host bits"),
        ("2001:db8::1", "brackets"),
        ("[::ffff:10.0.0.1]:80", "IPv4"),
        ("get https://example.com/", "capitals"),
        ("ftp://example.com/", "http or https"),
        ("https://example.com", "needs a path"),
        ("https://example.com/a?b", "without a query"),
        ("https://u@example.com/", "user name"),
        ("https://example.com/a/../b", "write /b"),
        ("https://example.com/" + "a*" * 9, "8 stars"),
        ("exa\nmple.com", "write a host"),
        ("@nothing", "@packages"),
    ],
)
def test_wrong_rule_is_refused_with_a_remedy(rule: str, remedy: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules([rule], {"packages": ["index.example.org"]})
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "0x7f.1",
            "127.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "127.0.0.01",
            "127.0.0.1.",
            "1.2.3.4.5",
            "a.0x7f",
        ),
        *(
            "",
            ".",
            "a..b",
            "example.com.",
            "ex ample.com",
            "exämple.com",
            "a" * 64,
            "a." * 127 + "ab",
            "%31.example.com",
        ),
        *("[::1", "::1%eth0", "[127.0.0.1]", "[example.com]", "a@b.example", "a\0.example", "\uff11.example"),
    ],
)
def test_host_in_an_odd_form_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        parse_host(text)


def test_mapped_address_becomes_the_address_inside() -> None:
    assert parse_host("[::ffff:7f00:1]") == ip_address("127.0.0.1")


def test_named_set_is_expanded_once() -> None:
    rules = parse_rules(["@packages", "a.example"], {"packages": ["index.example.org", "a.example"]})
    assert [rule.text for rule in rules] == ["index.example.org", "a.example"]
    with pytest.raises(RuleError, match=str(MAX_RULES)):
        parse_rules(f"a{number}.example" for number in range(MAX_RULES + 1))


def test_every_policy_must_allow_and_the_first_that_refuses_is_named() -> None:
    parent = RuleSet("parent", parse_rules(["a.example"]))
    child = RuleSet("child", parse_rules(["a.example", "b.example:443"]))
    access = NetworkAccess((child, parent))
    assert decide(access, target_of("a.example:443")).is_allowed
    reason = decide(access, target_of("b.example:443")).reason
    assert reason == "policy 'parent' does not allow host b.example; ask for the rule 'b.example'"
    assert not decide(NetworkAccess(()), target_of("a.example:443")).is_allowed


def test_refusal_of_a_path_names_the_request() -> None:
    access = access_of("GET https://a.example/v1/*")
    reason = decide(access, target_of("POST https://a.example/v2")).reason
    assert reason.endswith("ask for the rule 'POST https://a.example/v2'")


def test_tunnel_is_terminated_only_for_rules_with_paths_and_for_secrets() -> None:
    tunnel = Target("a.example", 443)
    assert decide(access_of("https://a.example/*"), tunnel).must_terminate_tls
    assert not decide(access_of("https://a.example/*", "a.example"), tunnel).must_terminate_tls
    secret = NetworkSecret("S", "placeholder-of-secret", ("a.example",), "Authorization", "Bearer {}", "a value that")
    access = NetworkAccess(access_of("a.example", "b.example").rule_sets, secrets=(secret,))
    assert decide(access, tunnel).must_terminate_tls
    assert not decide(access, Target("b.example", 443)).must_terminate_tls
    assert access.needs_certificate and access_of("https://a.example/*").needs_certificate
    assert not access_of("http://a.example/*", "a.example").needs_certificate


def test_private_address_of_a_name_needs_a_rule_of_every_policy() -> None:
    both = NetworkAccess(
        (*access_of("a.example", "10.0.0.0/8:443").rule_sets, *access_of("a.example", policy="b").rule_sets)
    )
    one = NetworkAccess(both.rule_sets[:1])
    assert decide_address(one, ip_address("10.2.3.4"), 443) == ""
    assert decide_address(one, ip_address("1.1.1.1"), 443) == ""
    assert "ask for the rule" in decide_address(one, ip_address("10.2.3.4"), 80)
    assert "policy 'b'" in decide_address(both, ip_address("10.2.3.4"), 443)
    assert decide_address(one, ip_address("::ffff:192.168.1.1"), 443)


@pytest.mark.parametrize(
    "change",
    [
        {"placeholder": "short"},
        {"value": "short"},
        {"value": "a value with\r\nlines"},
        {"template": "Bearer"},
        {"header": "Author ization"},
        {"header": "Host"},
        {"hosts": ("A.example",)},
        {"hosts": ("*.example",)},
    ],
)
def test_wrong_secret_is_refused_without_its_value(change: dict[str, object]) -> None:
    fields: dict[str, object] = {"hosts": ("a.example",), "header": "Authorization", "template": "Bearer {}"}
    fields |= {"name": "S", "placeholder": "placeholder-of-secret", "value": "a value that is long"}
    with pytest.raises(RuleError) as caught:
        NetworkSecret(**{**fields, **change})  # type: ignore[arg-type]
    assert "a value" not in str(caught.value)


def test_access_is_the_same_after_json_and_hides_values() -> None:
    secret = NetworkSecret("S", "placeholder-of-secret", ("a.example:8443",), "X-Key", "{}", "a value that is long")
    access = NetworkAccess(access_of("a.example:8443", "GET https://b.example/*").rule_sets, 1000, (secret,))
    assert access_from_json(access_to_json(access)) == access
    assert "a value" not in repr(access)
    assert secret.is_for("a.example", 8443) and not secret.is_for("a.example", 443)


@given(st.text(max_size=80))
def test_any_text_is_a_rule_or_a_rule_error(text: str) -> None:
    for parse in (parse_rule, parse_host):
        with suppress(RuleError):  # any other exception fails the test
            parse(text)


@given(st.text(alphabet="0123456789abcdefx.:[]%", min_size=1, max_size=40))
def test_host_like_an_address_is_canonical_or_refused(text: str) -> None:
    try:
        host = parse_host(text)
    except RuleError:
        return
    if isinstance(host, str):
        assert not host.rpartition(".")[2].isdigit()
    else:
        assert parse_host(str(host)) == host
