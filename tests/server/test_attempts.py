"""Wrong tokens from one address: so many at once and in a minute, and valid tokens beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from jupyter_exec_ext.auth.token_format import TokenText, new_token
from jupyter_exec_ext.engine.access.token_service import ATTEMPTS_AT_ONCE, ATTEMPTS_PER_MINUTE
from tests.support.addresses import FromAddress
from tests.support.bearers import mint
from tests.support.hosts import Host, running_host


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(request.param, tmp_path_factory.mktemp("attempts")) as started:
        yield started


def get(host: Host, token: str, address: str, **headers: str) -> requests.Response:
    with requests.Session() as session:
        session.mount("http://", FromAddress(address))
        headers = {"Authorization": f"Bearer {token}", **headers}
        return session.get(f"{host.info.url}exec/v1/", headers=headers, timeout=30)


def use_up(host: Host, address: str) -> list[str]:
    """Send wrong tokens until no more are taken; return them."""
    wrong = [new_token().text for _ in range(ATTEMPTS_AT_ONCE)]
    for text in wrong:
        answer = get(host, text, address)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    return wrong


def test_the_figures() -> None:
    assert (ATTEMPTS_AT_ONCE, ATTEMPTS_PER_MINUTE) == (20, 10)


def test_after_twenty_wrong_tokens_an_address_has_to_wait(host: Host) -> None:
    good, fresh = mint(host, ["sessions:read"]), mint(host, ["sessions:read"])
    address = "127.0.0.2"
    assert get(host, good.token, address).status_code == 200
    began = time.monotonic()
    wrong = use_up(host, address)
    for text in (new_token().text, new_token(good.id).text, wrong[0]):
        answer = get(host, text, address)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_attempts")
        assert 1 <= int(answer.headers["Retry-After"]) <= 6
    # What is no token at all is a slip of the keyboard, and no guess.
    for text in ("jex_abcdefgh_secret", "jex_", fresh.token[:-1]):
        assert get(host, text, address).status_code == 401
    # A valid one is let in, whether it was used from there before or not.
    assert get(host, fresh.token, address).status_code == 200
    assert get(host, good.token, address).status_code == 200
    # The owner's token is the host's own affair, and other addresses are others.
    assert get(host, str(host.info.token), address).status_code == 200
    assert get(host, fresh.token, "127.0.0.3").status_code == 200
    assert get(host, new_token().text, "127.0.0.3").status_code == 401
    # An address is where a connection comes from, whatever it says.
    for header in ("X-Forwarded-For", "X-Real-Ip", "Forwarded"):
        assert get(host, new_token().text, address, **{header: "127.0.0.9"}).status_code == 429
    time.sleep(max(0.0, began + 60 / ATTEMPTS_PER_MINUTE + 0.5 - time.monotonic()))
    assert get(host, new_token().text, address).status_code == 401


def send_wrong(host: Host, address: str, count: int) -> Counter[int]:
    """Send wrong tokens over one connection after another; return how often each status came."""
    with ThreadPoolExecutor(4) as pool:
        return Counter(pool.map(lambda _: get(host, new_token().text, address).status_code, range(count)))


@pytest.mark.parametrize("wrong", [25, 1000])
def test_valid_tokens_are_let_in_beside_wrong_ones(host: Host, wrong: int) -> None:
    address = f"127.0.1.{1 + wrong % 250}"
    parent = mint(host, ["sessions:read", "tokens:create"])
    child = mint(parent, ["sessions:read"])
    assert send_wrong(host, address, wrong).keys() == {401, 429}
    owners = str(host.info.token)
    for valid in (parent.token, child.token, mint(host, ["sessions:read"]).token, owners):
        for spelling in ("Bearer", "bearer", "token"):
            assert get(host, valid, address, Authorization=f"{spelling} {valid}").status_code == 200
    # Another attempt has become free every six seconds since.
    assert 429 in [get(host, new_token().text, address).status_code for _ in range(5)]


@pytest.mark.parametrize("way", ["query", "path", "basic", "cookie"])
def test_a_token_elsewhere_than_in_its_header_is_neither_counted_nor_let_in(host: Host, way: str) -> None:
    address = f"127.0.2.{1 + ['query', 'path', 'basic', 'cookie'].index(way)}"
    good = mint(host, ["sessions:read"])

    def statuses(text: str, count: int) -> set[int]:
        url, headers = f"{host.info.url}exec/v1/", {}
        if way == "query":
            url += f"?token={text}"
        elif way == "path":
            url += text
        elif way == "basic":
            headers["Authorization"] = f"Basic {text}"
        else:
            headers["Cookie"] = f"token={text}"
        with requests.Session() as session:
            session.mount("http://", FromAddress(address))
            return {
                session.get(url, headers=headers, timeout=30, allow_redirects=False).status_code for _ in range(count)
            }

    assert statuses(new_token().text, ATTEMPTS_AT_ONCE + 5) == {401}
    assert statuses(good.token, 1) == {401}
    assert get(host, good.token, address).status_code == 200
    assert get(host, new_token().text, address).status_code == 401


def test_the_owner_is_let_in_in_every_way_beside_wrong_tokens(host: Host) -> None:
    address = "127.0.0.6"
    use_up(host, address)
    owners = str(host.info.token)
    assert get(host, owners, address, Authorization=f"token {owners}").status_code == 200
    with requests.Session() as session:
        session.mount("http://", FromAddress(address))
        by_query = session.get(f"{host.info.url}api/kernels?token={owners}", timeout=30)
    assert by_query.status_code == 200


def test_others_are_served_during_a_flood_of_wrong_tokens(host: Host) -> None:
    """Verifying one costs a look into an index, and less than what else the server does for a request."""
    good = mint(host, ["sessions:read"])
    flood = [threading.Thread(target=send_wrong, args=(host, "127.0.0.7", 500)) for _ in range(2)]
    for thread in flood:
        thread.start()
    took = []
    while any(thread.is_alive() for thread in flood):
        began = time.monotonic()
        assert get(host, good.token, "127.0.0.7").status_code == 200
        took.append(time.monotonic() - began)
    assert len(took) >= 10
    assert sorted(took)[len(took) // 2] < 0.25, sorted(took)


def test_those_that_come_at_once_do_not_pass_together(host: Host) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: get(host, new_token().text, "127.0.0.4").status_code, range(50)))
    statuses = Counter(answers)
    assert statuses.keys() == {401, 429}
    assert ATTEMPTS_AT_ONCE <= statuses[401] <= ATTEMPTS_AT_ONCE + 1  # one comes back every six seconds


def test_the_log_has_the_id_and_never_the_secret(host: Host) -> None:
    secrets: list[TokenText] = [new_token() for _ in range(3)]
    good = mint(host, ["sessions:read"])
    before = len(host.log_text())
    for secret in secrets:
        get(host, secret.text, "127.0.0.5")
    assert get(host, good.token, "127.0.0.5").status_code == 200
    half = new_token().text[:40]
    get(host, half, "127.0.0.5")
    deadline = time.monotonic() + 5
    while any(secret.id not in host.log_text()[before:] for secret in secrets) and time.monotonic() < deadline:
        time.sleep(0.05)
    log = host.log_text()
    assert [secret.id in log[before:] for secret in secrets] == [True] * len(secrets)
    for text in (good.token, half, *(secret.text for secret in secrets)):
        assert text[13:] not in log
