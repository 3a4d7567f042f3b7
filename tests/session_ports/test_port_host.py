"""Host names of ports, headers that pass, and the bounds of one port: without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tornado.httputil import HTTPHeaders
from traitlets import TraitError

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.engine.settings import EngineSettings
from jupyter_exec_ext.errors import PortsNotAvailable, TooManyPortRequests
from jupyter_exec_ext.models import Session, SessionState
from jupyter_exec_ext.session_ports import open_port
from jupyter_exec_ext.session_ports.open_port import MAX_CONNECTIONS, OpenPort
from jupyter_exec_ext.session_ports.port_connector import require_reachable
from jupyter_exec_ext.session_ports.port_headers import (
    PortMode,
    headers_for_client,
    headers_for_port,
    redirection_for_client,
    without_tokens,
)
from jupyter_exec_ext.session_ports.port_host import PortHost
from jupyter_exec_ext.session_ports.port_services import _follow_logouts

LABEL = "p8501-0123456789abcdef"
AGENT = Caller("token:agent")


@pytest.mark.parametrize(
    ("domain", "name", "label"),
    [
        ("", f"{LABEL}.localhost", LABEL),
        ("", f"{LABEL.upper()}.LocalHost.", LABEL),
        ("", "jupyter.localhost", None),
        ("", "localhost", None),
        ("", f"{LABEL}.localhost.evil.example", None),
        ("*.apps.example.net", f"{LABEL}.apps.example.net", LABEL),
        ("*.apps.example.net", "apps.example.net", ""),
        ("*.apps.example.net", "a.b.apps.example.net", ""),
        ("*.apps.example.net", "jupyter.apps.example.net", "jupyter"),
        ("*.apps.example.net", "apps.example.net.evil.example", None),
        ("*.apps.example.net", f"{LABEL}.localhost", None),
    ],
)
def test_host_name_is_a_ports_or_jupyters(domain: str, name: str, label: str | None) -> None:
    assert PortHost(domain, is_hub=False).label_of(name) == label


def link(host: str, domain: str = "", *, is_hub: bool = False, **headers: str) -> tuple[str | None, str | None]:
    sent = HTTPHeaders({"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}})
    request = cast(Any, SimpleNamespace(host=host, host_name=host.rpartition(":")[0] or host, protocol="http"))
    request.headers = sent
    opened = SimpleNamespace(label=LABEL, issue_ticket=lambda caller: "ticket")
    return PortHost(domain, is_hub=is_hub).link_for(request, cast(Any, opened), owner())


@pytest.mark.parametrize("host", ["localhost:8888", "127.0.0.1:8888", "[::1]:8888"])
def test_server_reached_as_localhost_has_links_below_localhost(host: str) -> None:
    assert link(host) == (f"http://{LABEL}.localhost:8888/.exec-ticket/ticket", None)


@pytest.mark.parametrize(
    ("host", "domain", "options", "reason"),
    [
        ("lab.example.com", "", {}, "only where it is reached as localhost"),
        ("localhost", "", {"X_Forwarded_For": "10.0.0.1"}, "without a proxy"),
        ("localhost", "", {"is_hub": True}, "JupyterHub sends one host name"),
        ("lab.example.com", "*.apps.example.com", {}, "share the domain example.com"),
        ("lab.example.co.uk", "*.apps.example.co.uk", {}, "share the domain example.co.uk"),
        ("apps.example.net", "*.apps.example.net", {}, "share the domain apps.example.net"),
    ],
)
def test_where_there_is_no_second_name_the_answer_says_why(
    host: str, domain: str, options: dict[str, Any], reason: str
) -> None:
    url, why = link(host, domain, **options)
    assert url is None and reason in str(why)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("lab.example.com", "*.apps.example.net"),
        ("lab.example.com", "*.other.com"),
        ("lab.example.co.uk", "*.other.co.uk"),
        ("10.0.0.5:8888", "*.apps.example.net"),
    ],
)
def test_wildcard_under_another_domain_has_links_even_at_a_hub(host: str, domain: str) -> None:
    url, why = link(host, domain, is_hub=True, X_Forwarded_For="10.0.0.1")
    assert why is None and str(url).startswith(f"http://{LABEL}.{domain[2:]}")


@pytest.mark.parametrize("name", ["ports.example.net", "*", "*.", "*.a_b.net", "http://*.a.net", "*.a.net:80"])
def test_ports_host_that_is_no_wildcard_is_refused(name: str) -> None:
    with pytest.raises(TraitError, match="ports_host"):
        EngineSettings(ports_host=name)
    assert EngineSettings(ports_host="*.Apps.example.net.").ports_host == "*.apps.example.net"


# --- headers ---

NAMES = st.sampled_from(
    [
        *("Authorization", "Cookie", "Connection", "X-XSRFToken", "X-Csrftoken", "Upgrade", "Transfer-Encoding", "Te"),
        *("X-Forwarded-Host", "X-Forwarded-Prefix", "Proxy-Authorization", "Referer", "Host", "Keep-Alive", "X-App"),
    ]
)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=30).map(
    str.strip
)
HEADERS = st.lists(st.tuples(NAMES, VALUES | st.sampled_from(["close, X-App", "_xsrf=s; a=1", "exec-port=s"])))


@given(HEADERS, st.sampled_from(PortMode))
def test_no_credential_and_nothing_of_one_connection_reaches_the_app(sent: list[tuple[str, str]], mode: Any) -> None:
    headers = HTTPHeaders()
    for name, value in sent:
        headers.add(name, value)
    kept = headers_for_port(headers, mode, "app", {"X-Forwarded-Prefix": "/p"}, lambda name: name.startswith("login"))
    assert (kept["Host"], kept["X-Forwarded-Prefix"]) == ("app", "/p")
    for name in ("Authorization", "Connection", "Upgrade", "Transfer-Encoding", "Te", "Proxy-Authorization", "Referer"):
        assert name not in kept
    if mode is PortMode.API:
        assert not {"Cookie", "X-Xsrftoken", "X-Csrftoken"} & set(kept)
    for cookie in kept.get("Cookie", "").split(";"):
        assert not cookie.strip().startswith(("_xsrf=", "exec-port=", "__Host-exec-port=", "username-", "jupyter"))
    if "x-app" in {part.strip().lower() for part in headers.get("Connection", "").split(",")}:
        assert "X-App" not in kept


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(["/", "..", ".", "%2e", "%2E%2e", "\\", "//", "http:", "https://", "127.0.0.1", "a", "?", "@"])
    ).map("".join)
)
def test_redirection_of_program_leads_below_the_port_or_to_another_host(location: str) -> None:
    prefix = "/exec/v1/sessions/s/ports/1"
    found = redirection_for_client(location, "127.0.0.1", prefix, "/here")
    if found is None or found.startswith(("http://", "https://")):
        assert found is None or urlsplit(found).hostname != "127.0.0.1"
        return
    assert found == prefix or found.startswith(f"{prefix}/")
    assert not {"..", "."} & set(found.lower().replace("%2e", ".").replace("\\", "/").partition("?")[0].split("/"))


@pytest.mark.parametrize(
    ("host", "location"),
    [
        ("[::1]", "http://[::1]:8888/api/status"),
        ("lab.example.", "https://lab.example/api/status"),
        ("lab.example", "https://LAB.example./api/status"),
    ],
)
def test_redirection_to_jupyter_in_another_form_leads_below_the_port(host: str, location: str) -> None:
    assert redirection_for_client(location, host, "/ports/1", "/here") == "/ports/1/api/status"


def test_answer_in_browser_keeps_cookies_for_this_name_alone() -> None:
    answered = HTTPHeaders({"Set-Cookie": "a=1; domain = example.com ; Path=/", "Strict-Transport-Security": "x"})
    answered.add("Set-Cookie", "__Host-exec-port=x; Path=/")
    answered.add("Set-Cookie", "_xsrf=x")
    kept = headers_for_client(answered, PortMode.BROWSER)
    assert list(kept.get_all()) == [("Set-Cookie", "a=1; Path=/")]


def test_tokens_are_taken_out_of_the_query() -> None:
    assert without_tokens("a=1&token=secret&b=jex_x&token=own", "token secret") == "a=1&token=own"
    assert without_tokens("token=", "") == "token="


# --- bounds ---


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(open_port, "time", made)
    return made


@pytest.fixture
async def port(clock: Clock) -> OpenPort:
    records: list[Any] = []
    engine = SimpleNamespace(
        audit=SimpleNamespace(record=lambda *told, **data: records.append((*told, data))),
        watch_token=lambda caller, on_end: lambda: None,
        records=records,
    )
    live = SimpleNamespace(record=SimpleNamespace(id="ses_1"), renewed=0)
    live.renew_idle_timeout = lambda: setattr(live, "renewed", live.renewed + 1)
    return OpenPort(cast(Any, engine), cast(Any, live), cast(Any, None), 8501, "owner")


async def test_ticket_works_once_and_for_thirty_seconds(port: OpenPort, clock: Clock) -> None:
    early, late = port.issue_ticket(AGENT), port.issue_ticket(AGENT)
    clock.now += 29
    value = port.redeem_ticket(early)
    assert value is not None and port.redeem_ticket(early) is None and port.redeem_ticket("") is None
    clock.now += 2
    assert port.redeem_ticket(late) is None
    assert port.find_pass(["wrong", value]) is not None


async def test_pass_ends_after_its_time_together_with_open_websockets(
    port: OpenPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_port, "PASS_SECONDS", 0.01)
    value = str(port.redeem_ticket(port.issue_ticket(AGENT)))
    found, cut = port.find_pass([value]), asyncio.Event()
    assert found is not None
    port.begin_use(found.caller, cut.set)
    await asyncio.wait_for(cut.wait(), 30)
    assert port.find_pass([value]) is None


async def test_only_the_newest_tickets_and_passes_are_kept(port: OpenPort) -> None:
    tickets = [port.issue_ticket(AGENT) for _ in range(25)]
    assert [port.redeem_ticket(ticket) is None for ticket in tickets[:6]] == [True] * 5 + [False]
    passes = [port.redeem_ticket(port.issue_ticket(AGENT)) for _ in range(25)]
    assert sum(port.find_pass([str(value)]) is not None for value in passes) == 20


async def test_connections_and_requests_are_limited(port: OpenPort, clock: Clock) -> None:
    uses = [port.begin_use(AGENT, lambda: None) for _ in range(MAX_CONNECTIONS)]
    with pytest.raises(TooManyPortRequests):
        port.begin_use(AGENT, lambda: None)
    for use in uses:
        use.end()
    for _ in range(1000 - MAX_CONNECTIONS - 1):  # the refused one counts, too
        port.begin_use(AGENT, lambda: None).end()
    with pytest.raises(TooManyPortRequests) as refused:
        port.begin_use(AGENT, lambda: None)
    assert refused.value.retry_after_seconds
    clock.now += 60
    port.begin_use(AGENT, lambda: None).end()
    port.close("", "test")


async def test_silent_connection_is_cut(port: OpenPort, clock: Clock) -> None:
    cut: list[int] = []
    use = port.begin_use(AGENT, lambda: cut.append(1))
    clock.now += open_port.IDLE_SECONDS - 1
    use.note_received(10)
    clock.now += 2
    use.start()
    assert cut == []
    clock.now += open_port.IDLE_SECONDS
    use.start()
    assert cut == [1]
    use.end()
    port.close("", "test")


async def test_answers_to_pings_do_not_keep_a_session_alive(port: OpenPort, clock: Clock) -> None:
    live = cast(Any, port.live)
    use = port.begin_use(AGENT, lambda: None)
    clock.now += 61
    use.note_sent(16)
    assert live.renewed == 1
    use.note_sent(200)
    use.note_sent(200)
    assert live.renewed == 2
    use.end()
    port.close("", "test")


async def test_logout_ends_what_the_owner_has_open(port: OpenPort) -> None:
    cut: list[str] = []
    callers = {"owner": owner(), "agent": AGENT}
    values = {name: str(port.redeem_ticket(port.issue_ticket(caller))) for name, caller in callers.items()}
    uses = [port.begin_use(caller, lambda name=name: cut.append(name)) for name, caller in callers.items()]  # type: ignore[misc]
    cleared: list[Any] = []
    provider = SimpleNamespace(clear_login_cookie=cleared.append)
    _follow_logouts(provider, port.end_owners_passes)
    provider.clear_login_cookie(SimpleNamespace(current_user="ada"))  # of another handler: the cookie was not valid
    assert port.find_pass([values["owner"]]) is not None
    port.end_owners_passes()
    assert cut == ["owner"] and port.find_pass([values["owner"]]) is None
    assert port.find_pass([values["agent"]]) is not None
    for use in uses:
        use.end()
    port.close("", "test")


async def test_use_is_recorded_as_a_sum_at_the_close(port: OpenPort) -> None:
    for _ in range(3):
        use = port.begin_use(AGENT, lambda: None)
        use.note_sent(10)
        use.note_received(20)
        use.end()
    port.close("owner", "closed by the caller")
    used = {"port": 8501, "requests": 3, "sent_bytes": 30, "received_bytes": 60}
    assert cast(Any, port._engine).records == [
        ("port", "used", "token:agent", "ses_1", used),
        ("port", "closed", "owner", "ses_1", {"port": 8501, "reason": "closed by the caller"}),
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attached": True}, "attached"),
        ({"isolation": "landlock"}, "Landlock"),
        ({"isolation": "remote"}, "another machine"),
    ],
)
def test_kernel_whose_ports_cannot_be_reached_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    record = Session("ses_1", "owner", "python3", "python", SessionState.IDLE, "", "", **fields)
    with pytest.raises(PortsNotAvailable, match=reason):
        require_reachable(record)
