"""Secrets in requests: filled in for their host only, refused elsewhere, and taken out of what comes back."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import ssl
import string
from collections.abc import Callable
from urllib.parse import quote

import aiohttp
import pytest
import trustme
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jupyter_exec_ext.isolation.network.access_decision import NetworkAccess, NetworkSecret, Target
from jupyter_exec_ext.isolation.network.secret_filter import SecretFilter
from jupyter_exec_ext.isolation.network.upstream import Refused
from tests.support.full import scaled

from .servers import World, access_of, curl

VALUE, PLACEHOLDER = 's3cr3t/"value+of=40', "exec-secret-placeholder-7f3a"
SECRET = NetworkSecret("KEY", PLACEHOLDER, ("a.test",), "Authorization", "Bearer {}", VALUE)
ACCESS = NetworkAccess((), secrets=(SECRET,))
ALLOWED, OTHER, PLAIN = (
    Target("a.test", 443, "https", "GET", "/"),
    Target("b.test", 443, "https", "GET", "/"),
    Target("a.test", 443, "http", "GET", "/"),
)


def filled(*headers: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    return dict(SecretFilter(ACCESS, ALLOWED).fill("/", list(headers)))


def basic(credentials: str) -> bytes:
    return b"Basic " + base64.b64encode(credentials.encode())


def test_missing_header_is_added_and_a_header_without_the_placeholder_is_kept() -> None:
    assert filled()[b"Authorization"] == b"Bearer " + VALUE.encode()
    assert filled((b"authorization", b"Basic eDp5"))[b"authorization"] == b"Basic eDp5"


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        ([], ["KEY"]),
        ([(b"Authorization", b"Bearer " + PLACEHOLDER.encode())], ["KEY"]),
        ([(b"Authorization", basic(f"user:{PLACEHOLDER}"))], ["KEY"]),
        ([(b"Authorization", b"Bearer something-else")], []),
    ],
)
def test_filled_secrets_are_those_that_were_put_in(headers: list[tuple[bytes, bytes]], names: list[str]) -> None:
    secrets = SecretFilter(ACCESS, ALLOWED)
    secrets.fill("/", headers)
    assert [each.name for each in secrets.filled] == names


def test_placeholder_is_replaced_in_the_form_of_the_header_and_as_a_password() -> None:
    assert filled((b"Authorization", b"Bearer " + PLACEHOLDER.encode())) == {
        b"Authorization": b"Bearer " + VALUE.encode(),
        b"Accept-Encoding": b"identity",
    }
    value = filled((b"Authorization", basic(f"user:{PLACEHOLDER}")))[b"Authorization"]
    assert base64.b64decode(value[6:]).decode() == f"user:{VALUE}"


@pytest.mark.parametrize(
    "text",
    [
        b"token " + PLACEHOLDER.encode(),
        PLACEHOLDER.encode(),
        b"Digest AAAA" + PLACEHOLDER.encode() + b"BBB",
        b"Bearer " + PLACEHOLDER.encode() + b" x",
        b"Bearer x, Bearer " + PLACEHOLDER.encode(),
        basic(f"{PLACEHOLDER}:password"),
        basic(f"{PLACEHOLDER}:{PLACEHOLDER}"),
        basic(f"user:x{PLACEHOLDER}"),
        basic(f"user:{PLACEHOLDER}x"),
        basic(PLACEHOLDER),
    ],
)
def test_placeholder_in_another_form_of_the_header_is_refused(text: bytes) -> None:
    with pytest.raises(Refused, match=r"header Authorization, in a form other than|a user name"):
        filled((b"Authorization", text))


def test_second_header_and_a_password_in_another_header_are_refused() -> None:
    header = (b"Authorization", b"Bearer " + PLACEHOLDER.encode())
    with pytest.raises(Refused):
        filled(header, header)
    secret = NetworkSecret("KEY", PLACEHOLDER, ("a.test",), "X-Key", "{}", VALUE)
    with pytest.raises(Refused):
        SecretFilter(NetworkAccess((), secrets=(secret,)), ALLOWED).fill("/", [(b"X-Key", basic(f"u:{PLACEHOLDER}"))])


def test_headers_that_would_hide_the_value_in_the_answer_are_removed() -> None:
    headers = filled((b"Range", b"bytes=1-2"), (b"Accept-Encoding", b"gzip"), (b"X", b"y"))
    assert headers.keys() == {b"X", b"Authorization", b"Accept-Encoding"}


@pytest.mark.parametrize("target", [OTHER, PLAIN])
def test_other_hosts_and_plain_http_get_nothing(target: Target) -> None:
    assert SecretFilter(ACCESS, target).fill("/", [(b"X", b"y")]) == [(b"X", b"y")]
    with pytest.raises(Refused, match="KEY"):
        SecretFilter(ACCESS, target).fill("/", [(b"Authorization", b"Bearer " + PLACEHOLDER.encode())])


@pytest.mark.parametrize("target", [ALLOWED, OTHER])
def test_placeholder_in_another_place_is_refused(target: Target) -> None:
    with pytest.raises(Refused):
        SecretFilter(ACCESS, target).fill(f"/?{PLACEHOLDER}", [])
    for header in ((b"X", PLACEHOLDER.encode()), (PLACEHOLDER.encode(), b"x"), (b"X", basic(f"user:{PLACEHOLDER}"))):
        with pytest.raises(Refused):
            SecretFilter(ACCESS, target).fill("/", [header])


@given(st.integers(1, 40))
def test_placeholder_in_a_body_is_found_in_any_pieces(size: int) -> None:
    body = b"x" * 17 + PLACEHOLDER.encode() + b"y"
    secrets = SecretFilter(ACCESS, OTHER)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    with pytest.raises(Refused):
        list(map(secrets.check_sent, pieces))


@given(st.lists(st.sampled_from([VALUE, VALUE[:5], VALUE[5:], "x", VALUE[:-1]])), st.integers(1, 50))
def test_value_never_comes_back_in_any_pieces(parts: list[str], size: int) -> None:
    secrets = SecretFilter(ACCESS, ALLOWED)
    secrets.fill("/", [])
    body = "".join(parts).encode()
    pieces = [secrets.clean_body(body[start : start + size]) for start in range(0, len(body), size)]
    assert b"".join([*pieces, secrets.clean_body(b"", is_last=True)]) == body.replace(
        VALUE.encode(), PLACEHOLDER.encode()
    )


def pieces_out(value: str, pieces: list[bytes]) -> list[bytes]:
    """Return what comes out of a filter for each piece, and at the end."""
    secret = NetworkSecret("KEY", PLACEHOLDER, ("a.test",), "Authorization", "Bearer {}", value)
    secrets = SecretFilter(NetworkAccess((), secrets=(secret,)), ALLOWED)
    secrets.fill("/", [])
    return [*map(secrets.clean_body, pieces), secrets.clean_body(b"", is_last=True)]


VALUES = st.integers(8, 24).flatmap(lambda size: st.tuples(*[st.text('ab/"+%&', min_size=size, max_size=size)] * 2))


@given(VALUES, st.data())
def test_sizes_of_what_comes_out_are_the_same_for_all_values_of_one_length(
    values: tuple[str, str], data: st.DataObject
) -> None:
    # Programs guess a value by pieces that have its beginning, whatever comes before and after.
    parts = st.sampled_from([value[:size].encode() for value in values for size in range(1, len(value))])
    parts |= st.sampled_from([b"x", b"\n", b"\xff", b"y" * 100]) | st.binary(max_size=9)
    pieces = data.draw(st.lists(st.lists(parts, max_size=4).map(b"".join), max_size=6))
    assume(not any(value.encode() in b"".join(pieces) for value in values))
    first, second = (pieces_out(value, pieces) for value in values)
    assert b"".join(first) == b"".join(pieces)
    assert first == second


def test_events_come_out_at_their_newline_and_the_rest_at_the_end() -> None:
    assert pieces_out(VALUE, [b"data: x\n\n", b"data: y", b"z\n", b"no newline"]) == [
        *(b"data: x\n\n", b"", b"data: yz\n", b""),
        b"no newline",
    ]


ESCAPES: dict[str, Callable[[str], str]] = {
    "as it is": lambda char: char,
    "URL": lambda char: quote(char, safe=""),
    "URL, lower case": lambda char: quote(char, safe="").lower(),
    "path": quote,
    "JSON": lambda char: json.dumps(char)[1:-1],
    "JSON, slash": lambda char: json.dumps(char)[1:-1].replace("/", r"\/"),
    "JSON, code": lambda char: f"\\u{ord(char):04x}",
    "JSON, code in capitals": lambda char: f"\\u{ord(char):04X}",
    "program": lambda char: f"\\x{ord(char):02x}",
    "HTML": html.escape,
    "HTML, number": lambda char: f"&#{ord(char):03};",
    "HTML, hexadecimal": lambda char: f"&#x{ord(char):X};",
}


def forms_of(value: str, escape: Callable[[str], str], url_safe: bool, before: int) -> list[bytes]:
    """Return a value and its base64 after some other bytes, with special characters escaped."""
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    whole = encode(b"<" * before + value.encode() + b">").decode()[-(-8 * before // 6) : 8 * (before + len(value)) // 6]
    return ["".join(char if char.isalnum() else escape(char) for char in form).encode() for form in (value, whole)]


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_value_in_another_form_does_not_come_back(escape: Callable[[str], str]) -> None:
    for before in range(4):
        for form in (*forms_of(VALUE, escape, False, before), *forms_of(VALUE, escape, True, before)):
            assert form not in b"".join(pieces_out(VALUE, [b"<" + form + b">"]))


@settings(max_examples=scaled(2000, per_commit=100))
@given(
    st.text(string.printable[:-5], min_size=8, max_size=40).filter(lambda value: value == value.strip()),
    st.sampled_from(list(ESCAPES.values())),
    st.booleans(),
    st.integers(0, 4),
    st.integers(1, 80),
)
def test_forms_of_any_value_do_not_come_back_in_any_pieces(
    value: str, escape: Callable[[str], str], url_safe: bool, before: int, size: int
) -> None:
    for form in forms_of(value, escape, url_safe, before):
        body = b"<" + form + b">"
        assert form not in b"".join(
            pieces_out(value, [body[start : start + size] for start in range(0, len(body), size)])
        )


def test_search_for_a_value_with_backslashes_ends() -> None:
    assert pieces_out("\\" * 40 + "x", [b"\\" * 1000]) == [b"\\" * 563, b"\\" * 437]


def test_value_does_not_come_back_in_headers_and_reasons() -> None:
    secrets = SecretFilter(ACCESS, ALLOWED)
    secrets.fill("/", [])
    for form in (VALUE, json.dumps(VALUE), base64.b64encode(VALUE.encode()).decode()):
        assert form.encode() not in secrets.clean_text(b"OK " + form.encode())
        assert secrets.clean_headers([(b"X", form.encode())]) != [(b"X", form.encode())]


def test_basic_credentials_with_the_value_do_not_come_back() -> None:
    secrets = SecretFilter(ACCESS, ALLOWED)
    sent = basic(f"user:{PLACEHOLDER}")
    value = dict(secrets.fill("/", [(b"Authorization", sent)]))[b"Authorization"]
    assert secrets.clean_body(b"<" + value + b">", is_last=True) == b"<" + sent + b">"


def test_value_in_a_websocket_ends_it() -> None:
    secrets = SecretFilter(ACCESS, ALLOWED)
    secrets.fill("/", [])
    secrets.refuse_value(b"\x81" + VALUE[:7].encode())
    with pytest.raises(Refused):
        secrets.refuse_value(VALUE[7:].encode())


async def test_secret_is_used_at_its_host_and_nowhere_else(world: World) -> None:
    here, other = f"a.test:{world.https}", f"b.test:{world.https}"
    secret = NetworkSecret("KEY", PLACEHOLDER, (here,), "Authorization", "Bearer {}", VALUE)
    proxy = await world.open(access_of(here, f"https://{other}/*", f"b.test:{world.http}", secrets=(secret,)))
    trust = ssl.create_default_context(cafile=await world.trusted())
    async with aiohttp.ClientSession() as session:
        for number in range(scaled(1000, per_commit=20)):
            headers = {} if number % 2 else {"Authorization": f"Bearer {PLACEHOLDER}"}
            async with session.get(f"https://{here}/echo", headers=headers, proxy=proxy, ssl=trust) as response:
                text = await response.text()
                assert f"Authorization: Bearer {PLACEHOLDER}" in text and VALUE not in text
                assert response.headers["X-Echo"] == f"Bearer {PLACEHOLDER}"
        used = [request[2]["Authorization"] for request in world.seen.requests]
        assert used == [f"Bearer {VALUE}"] * len(used)
        world.seen.requests.clear()
        for number in range(scaled(200, per_commit=12)):
            base = (f"https://{other}", f"http://b.test:{world.http}", f"https://{here}")[number % 3]
            kind = number // 3 % 4
            headers = {"X-Key" if number % 3 == 2 else "Authorization": PLACEHOLDER} if kind == 0 else {}
            url = f"{base}/?{PLACEHOLDER}" if kind == 1 else f"{base}/{PLACEHOLDER}" if kind == 2 else base
            data = "x" * 70_000 + PLACEHOLDER if kind == 3 else ""
            async with session.post(url, headers=headers, data=data, proxy=proxy, ssl=trust) as response:
                assert response.status == 403 and "secret 'KEY'" in await response.text()
    assert not [request for request in world.seen.requests if PLACEHOLDER in repr(request) or VALUE in repr(request)]
    assert VALUE not in repr(world.records)


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 200 {VALUE}\r\nContent-Length: 2\r\n\r\nok",
        f"HTTP/1.1 {VALUE} x\r\n\r\n",
        f"HTTP/1.1 200 x\r\n{VALUE}\r\n\r\n",
        f"{VALUE}\r\n\r\n",
    ],
)
async def test_value_in_a_status_line_or_a_malformed_answer_does_not_come_back(world: World, answer: str) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("a.test").configure_cert(context)
    authority.cert_pem.write_to_path(str(world.authority), append=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer.encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    here = f"a.test:{server.sockets[0].getsockname()[1]}"
    secret = NetworkSecret("KEY", PLACEHOLDER, (here,), "Authorization", "Bearer {}", VALUE)
    proxy = await world.open(access_of(here, secrets=(secret,)))
    _, text = await curl(proxy, "-v", "--cacert", await world.trusted(), f"https://{here}/")
    server.close()
    await world.record()
    assert VALUE not in text and VALUE not in repr(world.records)


async def test_compressed_answer_of_a_host_with_a_secret_is_not_passed_on(world: World) -> None:
    here = f"a.test:{world.https}"
    secret = NetworkSecret("KEY", PLACEHOLDER, (here,), "X-Api-Key", "{}", VALUE)
    proxy = await world.open(access_of(here, secrets=(secret,)))
    _, text = await curl(proxy, "--cacert", await world.trusted(), f"https://{here}/gzip")
    assert "compressed its answer" in text


@pytest.mark.parametrize("other", [(), (NetworkSecret("KEY", PLACEHOLDER, ("a.test",), "X-Key", "{}", VALUE + "2"),)])
async def test_connection_that_used_a_secret_ends_when_that_is_deleted_or_changed(
    world: World, other: tuple[NetworkSecret, ...]
) -> None:
    here = f"a.test:{world.https}"
    secret = NetworkSecret("KEY", PLACEHOLDER, (here,), "X-Key", "{}", VALUE)
    proxy = await world.open(access_of(f"https://{here}/*", secrets=(secret,)))
    trust = ssl.create_default_context(cafile=await world.trusted())
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"wss://{here}/ws", proxy=proxy, ssl=trust) as socket,
    ):
        await socket.send_str("one")
        assert await socket.receive_str() == "one"
        await world.proxy.change("s1", access_of(f"https://{here}/*", secrets=other))
        assert (await socket.receive(10)).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    record = await world.record()
    assert (record.secrets, record.reason) == (["KEY"], "the rules or secrets of the session have changed")
