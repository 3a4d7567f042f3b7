"""A JupyterHub token is revoked while code and streams go on in its name, and a token that it made is used."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from tests.server.test_hub import logged_in
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hubs import RUNNER, USER, HubHost, running_hub

pytestmark = [pytest.mark.needs("configurable-http-proxy"), pytest.mark.timeout(600), only_in_full]

ROUNDS = 24
AT_ONCE = 4
# Limits in seconds after the revocation, which the Hub's answer ends.
REFUSED_P95, ENDED_P95, LONGEST = 6.0, 7.0, 15.0
OPTIONS = [UNPROTECTED, "--ExecExtensionApp.hub_policies={'custom:exec:run': 'default'}"]
CODE = "import time\nfor i in range(100_000):\n    print(i, flush=True)\n    time.sleep(0.05)"
ACCESS = f"access:servers!user={USER}"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHost]:
    with running_hub(tmp_path_factory.mktemp("hub"), *OPTIONS) as host:
        yield host


def running_execution(bearer: Bearer, session: str) -> str:
    request = {"json": {"code": CODE}, "headers": {"Prefer": "respond-async"}}
    started = bearer.call("POST", f"/sessions/{session}/executions", **request)
    assert started.status_code == 202, started.text
    return str(started.json()["id"])


def until_refused(bearer: Bearer) -> tuple[float, str]:
    """Ask until the token is refused; return when it was, and as what."""
    give_up_at = time.monotonic() + 2 * LONGEST
    while (answer := bearer.call("GET", "/sessions")).status_code != 401:
        assert answer.status_code == 200, answer.text
        assert time.monotonic() < give_up_at
        time.sleep(0.05)  # nothing else tells
    return time.monotonic(), answer.json()["code"]


def until_streams_end(stream: Any) -> float:
    for _ in stream.iter_content(None):
        pass
    return time.monotonic()


def until_executions_end(owner: Bearer, execution: str) -> tuple[float, str]:
    ended = owner.call("GET", f"/executions/{execution}", headers={"Prefer": "wait=60"})
    assert ended.status_code == 200, ended.text
    return time.monotonic(), ended.json()["state"]


def wait_for_state(owner: Bearer, session: str, state: str) -> None:
    """Wait until a session, whose kernel is being stopped, is in a state."""
    give_up_at = time.monotonic() + LONGEST
    while owner.call("GET", f"/sessions/{session}").json()["state"] != state:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)  # nothing tells of a single session


def revoke_one(hub: HubHost, number: int) -> dict[str, float]:
    """Let a token do all it can, revoke it, and return after how many seconds each part ended."""
    owner = owner_of(hub)
    is_own = number % 2 == 0
    user, scopes = (USER, [ACCESS]) if is_own else (RUNNER, [ACCESS, "custom:exec:run"])
    bearer = Bearer(hub, hub.token_of(user, *scopes))
    made = mint(bearer, ALL_SCOPES - {"pool:read"})
    session, of_made = bearer.session(), made.session()
    executions = [running_execution(bearer, session), running_execution(made, of_made)]
    others = ""
    if is_own:  # the owner's tokens run code in each other's sessions
        others = owner.session()
        executions.append(running_execution(bearer, others))
    streams = [bearer.call("GET", path, stream=True) for path in ("/events", f"/executions/{executions[0]}/events")]
    time.sleep(number % 5)  # at any moment of the interval in which the Hub is asked
    with ThreadPoolExecutor() as pool:
        hub.revoke_token(user, bearer.token)
        revoked_at = time.monotonic()
        ends = [pool.submit(until_streams_end, stream) for stream in streams]
        codes = [pool.submit(until_executions_end, owner, each) for each in executions]
        asking = [pool.submit(until_refused, each) for each in (bearer, made)]
        (refused, refused_as), (made_refused, made_as) = (each.result() for each in asking)
        assert {code.result()[1] for code in codes} == {"token_revoked"}
        found = {
            "refused": refused,
            "made token refused": made_refused,
            "code ended": max(code.result()[0] for code in codes),
            "streams ended": max(end.result() for end in ends),
        }
    assert (refused_as, made_as) == ("unauthenticated", "token_revoked")
    for each in (session, of_made):
        wait_for_state(owner, each, "ended")
    if others:
        wait_for_state(owner, others, "idle")
        owner.call("DELETE", f"/sessions/{others}")
    return {name: moment - revoked_at for name, moment in found.items()}


def test_a_revoked_hub_token_ends_with_all_that_goes_on_in_its_name(hub: HubHost) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rounds = list(pool.map(lambda number: revoke_one(hub, number), range(ROUNDS)))
    for name in rounds[0]:
        seconds = sorted(each[name] for each in rounds)
        p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
        print(f"\n{name}: n {len(seconds)}, p50 {statistics.median(seconds):.2f} s, p95 {p95:.2f} s, ", end="")
        print(f"longest {seconds[-1]:.2f} s")
        assert seconds[-1] <= LONGEST, name
        assert p95 <= (REFUSED_P95 if name == "refused" else ENDED_P95), name


def test_a_login_that_ends_closes_its_streams_and_leaves_sessions_and_tokens(hub: HubHost) -> None:
    owner, browser = owner_of(hub), logged_in(hub, USER)
    url = f"{hub.info.url}exec/v1"
    values = [cookie.value for cookie in browser.cookies if cookie.name == "_xsrf" and cookie.path == hub.info.base_url]
    xsrf = {"X-XSRFToken": str(values[0])}
    session = browser.post(f"{url}/sessions", headers=xsrf, timeout=60).json()["id"]
    request = {"name": "x", "scopes": ["sessions:read"]}
    token = browser.post(f"{url}/tokens", headers=xsrf, json=request, timeout=60).json()["token"]
    stream = browser.get(f"{url}/events", headers=xsrf, stream=True, timeout=60)
    assert stream.status_code == 200
    browser.get(f"{hub.hub_url}logout", timeout=30)
    until_streams_end(stream)
    assert owner.call("GET", f"/sessions/{session}").json()["state"] == "idle"
    assert Bearer(hub, token).call("GET", "/sessions").status_code == 200


def test_while_the_hub_is_silent_known_tokens_stay_good(hub: HubHost) -> None:
    known = Bearer(hub, hub.token_of(RUNNER, ACCESS, "custom:exec:run"))
    new = Bearer(hub, hub.token_of(RUNNER, ACCESS, "custom:exec:run"))
    session = known.session()
    execution = running_execution(known, session)
    hub.process.send_signal(signal.SIGSTOP)
    try:
        silent_until = time.monotonic() + 12.0  # the Hub's answers are older than any cache then
        while time.monotonic() < silent_until:
            assert known.call("GET", f"/executions/{execution}").json()["state"] == "running"
        refused = new.call("GET", "/sessions")
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    finally:
        hub.process.send_signal(signal.SIGCONT)
    assert known.call("DELETE", f"/sessions/{session}").status_code == 204
    assert new.call("GET", "/sessions").status_code == 200
