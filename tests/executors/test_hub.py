"""`JupyterHubServer` at a real JupyterHub: it starts a user's server, waits for it, and stops what it started."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import websocket

from jupyter_exec_ext import (
    AsyncExecClient,
    CodeBlock,
    ExecClient,
    JupyterCodeExecutor,
    JupyterConnectable,
    JupyterConnectionInfo,
    JupyterHubServer,
)
from jupyter_exec_ext.client.api.steps import Pause, Reply, Request
from jupyter_exec_ext.errors import (
    ClientError,
    ConnectionFailed,
    ExecError,
    Forbidden,
    LimitReached,
    MissingScope,
    NotFound,
    ServerStartFailed,
    ServerStartTimeout,
    SessionNotFound,
    Unauthenticated,
    UnexpectedAnswer,
)
from jupyter_exec_ext.executors import LaunchProgress
from jupyter_exec_ext.executors.hub_api import HubServerApi, hub_at
from jupyter_exec_ext.executors.remote_launch import server_at
from tests.client.test_fork_safety import child
from tests.support import canaries
from tests.support.bearers import UNPROTECTED
from tests.support.full import only_in_full
from tests.support.hosts import free_port
from tests.support.hubs import USER, HubHost, running_hub
from tests.support.tcp_proxies import CuttingProxy

LIGHT = Path(__file__).parents[1] / "hub" / "light_server.py"
# The administrator's side: named servers, and a spawner that does what `user_options` ask for. What is asked of the Hub
# alone is tested with users whose servers answer and are no Jupyter servers, which start in no time.
# It lets tokens live for less than a server's is asked for by default.
LONGEST_SECONDS = 3600
RECIPE = f"""
import asyncio
import json
import sys

from jupyterhub.spawner import SimpleLocalProcessSpawner


class Obliging(SimpleLocalProcessSpawner):
    async def start(self):
        if "note" in self.user_options:
            with open(self.user_options["note"], "a") as note:
                note.write(json.dumps([self.user.name, self.name]))
        if "fail" in self.user_options:
            raise RuntimeError(self.user_options["fail"])
        if "hang" in self.user_options:
            await asyncio.Event().wait()
        await asyncio.sleep(self.user_options.get("slow", 0))
        if self.user.name.startswith("light"):
            self.cmd = [sys.executable, {str(LIGHT)!r}]
        return await super().start()

    async def stop(self, now=False):
        await asyncio.sleep(self.user_options.get("linger", 0))
        await super().stop(now=now)

    async def progress(self):
        for percent in (10, 50):
            yield {{"progress": percent, "message": f"at \\x1b[31m{{percent}}"}}


c.JupyterHub.spawner_class = Obliging
c.JupyterHub.allow_named_servers = True
c.JupyterHub.concurrent_spawn_limit = 3
c.JupyterHub.token_expires_in_max_seconds = {LONGEST_SECONDS}
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0.1, "slow_stop_timeout": 0.1}}
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHost]:
    home = tmp_path_factory.mktemp("hub")
    recipe = home / "recipe.py"
    recipe.write_text(RECIPE)
    with running_hub(home, UNPROTECTED, recipe=recipe) as host:
        canaries.note(host.hub_token)
        yield host
        assert not canaries.look_through(host)


def token_of(hub: HubHost, user: str, *scopes: str) -> str:
    hub.api("POST", f"/users/{user}") if user not in names(hub) else None
    return canaries.note(hub.token_of(user, *scopes))


def names(hub: HubHost) -> list[str]:
    return [user["name"] for user in hub.api("GET", "/users")]


def servers(hub: HubHost, user: str) -> dict[str, Any]:
    found: dict[str, Any] = hub.api("GET", f"/users/{user}")["servers"]
    return found


def tokens(hub: HubHost, user: str) -> list[str]:
    return [token["note"] for token in hub.api("GET", f"/users/{user}/tokens")["api_tokens"]]


def stop_behind_its_back(hub: HubHost, user: str) -> None:
    """Stop a server as a culler would."""
    hub.api("DELETE", f"/users/{user}/server")
    deadline = time.monotonic() + 30
    while servers(hub, user):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run(executor: JupyterCodeExecutor, code: str) -> str:
    return executor.execute_code_blocks([CodeBlock(code, "python")]).output


# A key of somebody else's, or one that is worth nothing any more.
REFUSED = (Forbidden, Unauthenticated)


def no_way_in(keys: Sequence[str], info: JupyterConnectionInfo, session_id: str) -> None:
    """Try all that leads to code at a server, and to a session of its user's, with what others have for keys."""
    with ExecClient(info) as own, own.standard_session() as kernel:  # its WebSocket is open: it opens for its user
        assert session_id in [session.id for session in own.list_sessions()]
        channels = f"{info.ws_url}api/kernels/{kernel.id}/channels"
        for key in keys:
            there = replace(info, token=key)
            with pytest.raises(REFUSED):
                JupyterCodeExecutor(there)
            with ExecClient(there) as other:
                for ask in (other.info, other.session, other.standard_session, other.list_sessions):
                    with pytest.raises(REFUSED):
                        ask()
                with pytest.raises(REFUSED):
                    other.get_session(session_id)
            for path in ("api/kernels", f"exec/v1/sessions/{session_id}", f"exec/v1/sessions/{session_id}/executions"):
                for method in ("GET", "POST"):
                    body = {"code": "1"} if method == "POST" else None
                    answer = requests.request(
                        method, info.url + path, headers=there.auth_headers, json=body, timeout=30
                    )
                    assert answer.status_code in (401, 403), (method, path, answer.status_code)
            with pytest.raises(websocket.WebSocketBadStatusException) as refused:
                websocket.create_connection(
                    channels, header=there.auth_headers, suppress_origin=True, http_no_proxy=["*"], timeout=30
                )
            assert refused.value.status_code in (401, 403)


def is_known(hub: HubHost, key: str) -> bool:
    answer = requests.get(f"{hub.hub_url}api/user", headers={"Authorization": f"token {key}"}, timeout=30)
    return answer.status_code == 200


def key_of(server: JupyterHubServer) -> str:
    return canaries.note(str(server.connection_info.token))


@only_in_full
def test_two_users_have_servers_apart_that_survive_a_restart(hub: HubHost) -> None:
    ada, bob = token_of(hub, "ada"), token_of(hub, "bob")
    with JupyterHubServer(hub.hub_url, ada) as adas, JupyterHubServer(hub.hub_url, bob) as bobs:
        assert isinstance(adas, JupyterConnectable)
        assert (adas.user, bobs.user) == ("ada", "bob")
        assert (adas.connection_info.base_url, bobs.connection_info.base_url) == ("/user/ada/", "/user/bob/")
        with JupyterCodeExecutor(adas) as one, JupyterCodeExecutor(bobs) as other:
            assert run(one, "whose = 'ada'; print(whose)") == "ada\n"
            assert run(other, "whose = 'bob'; print(whose)") == "bob\n"
            stop_behind_its_back(hub, "ada")
            adas.start()
            assert "A fresh session was started" in run(one, "print(whose)")
            assert "NameError" in run(one, "print(whose)")
            assert run(one, "whose = 'ada again'; print(whose)") == "ada again\n"
            assert run(other, "print(whose)") == "bob\n"
    for user in ("ada", "bob"):
        assert servers(hub, user) == {}
        assert "jupyter_exec_ext" not in tokens(hub, user)


@pytest.mark.timeout(300)
@only_in_full
def test_neither_of_two_users_reaches_the_other_before_or_after_a_restart(hub: HubHost) -> None:
    """Whichever key of theirs they try: the Hub's, that of their own server, and one that this had before."""
    ada, bob = token_of(hub, "ada"), token_of(hub, "bob")
    with JupyterHubServer(hub.hub_url, ada) as adas, JupyterHubServer(hub.hub_url, bob) as bobs:
        before = [key_of(adas), key_of(bobs)]
        with JupyterCodeExecutor(adas) as one, JupyterCodeExecutor(bobs) as other:
            one_id, other_id = one._session.id, other._session.id
            no_way_in([ada, before[0]], bobs.connection_info, other_id)
            no_way_in([bob, before[1]], adas.connection_info, one_id)
            with ExecClient(adas) as client, pytest.raises(SessionNotFound):  # at one's own server, either
                client.get_session(other_id)
        for server in (adas, bobs):
            server.stop()
            server.start()
        after = [key_of(adas), key_of(bobs)]
        assert not {*before} & {*after}
        with pytest.raises(REFUSED), ExecClient(replace(adas.connection_info, token=before[0])) as client:
            client.info()  # what it was good for once
        with JupyterCodeExecutor(adas) as one, JupyterCodeExecutor(bobs) as other:
            no_way_in([ada, before[0], after[0]], bobs.connection_info, other._session.id)
            no_way_in([bob, before[1], after[1]], adas.connection_info, one._session.id)
            assert run(one, "print('ada')") == "ada\n"
            assert run(other, "print('bob')") == "bob\n"


@only_in_full
def test_a_server_that_runs_already_is_used_and_not_stopped(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, USER)) as server:
        assert not server.started
        with ExecClient(server) as client:
            assert client.info()["name"] == "jupyter_exec_ext"
    assert servers(hub, USER)[""]["ready"]


def test_started_server_can_be_left_running(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-eve"), stop=False) as server:
        assert server.started
    assert servers(hub, "light-eve")[""]["ready"]
    assert "jupyter_exec_ext" not in tokens(hub, "light-eve")
    stop_behind_its_back(hub, "light-eve")


def test_token_can_be_left_valid_and_lives_as_long_as_the_hub_allows(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-ida")) as server:
        key = key_of(server)
        server.keep_token()
    answer = requests.get(f"{hub.hub_url}api/user", headers={"Authorization": f"token {key}"}, timeout=30)
    (left,) = [
        token
        for token in hub.api("GET", "/users/light-ida/tokens")["api_tokens"]
        if token["note"] == "jupyter_exec_ext"
    ]
    assert answer.json()["token_id"] == left["id"]
    lifetime = datetime.fromisoformat(left["expires_at"]) - datetime.fromisoformat(left["created"])
    assert lifetime == pytest.approx(timedelta(seconds=LONGEST_SECONDS), abs=timedelta(seconds=5))
    hub.revoke_token("light-ida", key)


def test_server_restarted_by_another_client_is_not_stopped(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-eve")) as server:
        assert server.started
        stop_behind_its_back(hub, "light-eve")
        hub.start_server("light-eve")
    assert servers(hub, "light-eve")[""]["ready"]
    stop_behind_its_back(hub, "light-eve")


@only_in_full
async def test_a_named_server_of_another_user_with_options(hub: HubHost, tmp_path: Path) -> None:
    """A service's token starts servers for users, and no user's server ever sees it."""
    hub.api("POST", "/users/fay")
    note = tmp_path / "note"
    server = JupyterHubServer(
        hub.hub_url, hub.hub_token, user="fay", server_name="lab", user_options={"note": str(note)}
    )
    with server:
        assert note.read_text() == '["fay", "lab"]'
        assert list(servers(hub, "fay")) == ["lab"]
        assert server.connection_info.base_url == "/user/fay/lab/"
        own = canaries.note(str(server.connection_info.token))
        assert own != hub.hub_token
        async with AsyncExecClient(server) as client, await client.session() as session:
            assert (await session.run("6 * 7")).ok
        with pytest.raises(MissingScope, match="read:servers!user=fay"):  # it is worth nothing at the Hub
            JupyterHubServer(hub.hub_url, own, narrow_token=False)
    assert servers(hub, "fay") == {}


@only_in_full
def test_the_hubs_token_is_sent_to_the_server_only_where_that_is_asked_for(hub: HubHost) -> None:
    token = token_of(hub, "gus", "servers!user=gus", "access:servers!user=gus")
    with pytest.raises(MissingScope, match=r"tokens!user=gus"):
        JupyterHubServer(hub.hub_url, token)
    with JupyterHubServer(hub.hub_url, token, narrow_token=False) as server, ExecClient(server) as client:
        assert server.connection_info.token == token
        assert client.info()["name"] == "jupyter_exec_ext"
    assert servers(hub, "gus") == {}


@pytest.mark.parametrize(
    ("scopes", "missing"),
    [
        ([], "read:servers!user=gus"),
        (["read:servers!user=gus"], "start:servers!user=gus"),
    ],
)
def test_a_scope_that_is_missing_is_named(hub: HubHost, scopes: list[str], missing: str) -> None:
    token = token_of(hub, "gus", "read:users:name!user=gus", "tokens!user=gus", *scopes)
    with pytest.raises(MissingScope, match=missing) as caught:
        JupyterHubServer(hub.hub_url, token)
    assert token not in str(caught.value)
    assert "jupyter_exec_ext" not in tokens(hub, "gus")


def test_server_of_another_user_is_refused(hub: HubHost) -> None:
    with pytest.raises(ExecError) as caught:
        JupyterHubServer(hub.hub_url, token_of(hub, "gus"), user=USER)
    assert isinstance(caught.value, (MissingScope, NotFound))
    assert f"user={USER}" in str(caught.value)


def test_wrong_hub_or_token_is_reported(hub: HubHost, hosts: Any) -> None:
    with pytest.raises(Unauthenticated, match="does not know this token"):
        JupyterHubServer(hub.hub_url, canaries.note("no-token-of-this-hub"))
    with pytest.raises(ValueError, match="user="):
        JupyterHubServer(hub.hub_url, hub.hub_token)
    with pytest.raises(MissingScope, match="nobody not found or no permissions"):
        JupyterHubServer(hub.hub_url, hub.hub_token, user="nobody")
    with pytest.raises(NotFound, match="no JupyterHub"):
        JupyterHubServer(hosts["server"].info.url, hosts["server"].info.token)
    with pytest.raises(ConnectionFailed):
        JupyterHubServer(f"http://127.0.0.1:{free_port()}/", "t")
    with pytest.raises(ValueError, match="token"):
        JupyterHubServer(hub.hub_url)
    with pytest.raises(ValueError, match="startup_timeout_seconds"):
        JupyterHubServer(hub.hub_url, "t", startup_timeout_seconds=0)
    with pytest.raises(ValueError, match="token_lifetime_seconds"):
        JupyterHubServer(hub.hub_url, "t", token_lifetime_seconds=0)


def test_failed_spawn_reports_hubs_message(hub: HubHost) -> None:
    token = token_of(hub, "light-hal")
    with pytest.raises(ServerStartFailed, match=r"(?s)light-hal/.*no room on the cluster") as caught:
        JupyterHubServer(hub.hub_url, token, user_options={"fail": "no room on the cluster"})
    assert token not in str(caught.value)
    assert "jupyter_exec_ext" not in tokens(hub, "light-hal")
    with JupyterHubServer(hub.hub_url, token, user_options={"slow": 0}) as server:  # the failure does not stick
        assert server.started


@only_in_full
def test_a_spawn_that_hangs_is_given_up_in_time_and_cancelled(hub: HubHost) -> None:
    token = token_of(hub, "light-ivy")
    begun = time.monotonic()
    with pytest.raises(ServerStartTimeout, match="within 2 s"):
        JupyterHubServer(hub.hub_url, token, user_options={"hang": True}, startup_timeout_seconds=2)
    assert 2 <= time.monotonic() - begun < 20
    assert servers(hub, "light-ivy") == {}
    assert "jupyter_exec_ext" not in tokens(hub, "light-ivy")


@pytest.mark.parametrize("user", [None, "ada"])
def test_start_deadline_holds_with_silent_hub(user: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(ServerStartTimeout, match="within 1 s"):
            JupyterHubServer(f"http://127.0.0.1:{silent.getsockname()[1]}/", "t", user=user, startup_timeout_seconds=1)
        assert time.monotonic() - begun < 8


def test_start_by_another_client_is_waited_for_and_not_stopped(hub: HubHost) -> None:
    token = token_of(hub, "light-jon")
    hub.api("POST", "/users/light-jon/server", slow=1)
    assert servers(hub, "light-jon")[""]["pending"] == "spawn"
    with JupyterHubServer(hub.hub_url, token) as server:
        assert not server.started
    assert servers(hub, "light-jon")[""]["ready"]
    stop_behind_its_back(hub, "light-jon")


@only_in_full
def test_a_server_that_is_stopping_is_started_when_it_has(hub: HubHost) -> None:
    token = token_of(hub, "light-kim")
    with JupyterHubServer(hub.hub_url, token, user_options={"linger": 1}, stop=False):
        pass
    hub.api("DELETE", "/users/light-kim/server")
    assert servers(hub, "light-kim")[""]["pending"] == "stop"
    with JupyterHubServer(hub.hub_url, token, user_options={"linger": 1}) as server:
        assert server.started
    assert servers(hub, "light-kim") == {}  # also the end is waited for


def test_progress_has_no_terminal_control_characters(hub: HubHost) -> None:
    told: list[LaunchProgress] = []
    options = {"slow": 1}  # or it may be there before its progress is asked for
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-lee"), user_options=options, on_progress=told.append):
        pass
    assert [(p.phase, p.percent) for p in told if p.percent] == [
        ("starting", 10.0),
        ("starting", 50.0),
        ("ready", 100.0),
    ]
    assert "at 10" in [p.message for p in told]
    assert [p.phase for p in told if p.begins] == ["starting", "ready"]


@pytest.mark.parametrize("cut_after_bytes", [1, 400])
def test_a_cut_stream_of_progress_is_taken_up_again(hub: HubHost, cut_after_bytes: int) -> None:
    info = JupyterConnectionInfo.from_url(hub.hub_url)
    with CuttingProxy(info, cut_after_bytes=cut_after_bytes, cut_requests_to="/progress", max_cuts=2) as proxy:
        options = {"slow": 1}
        with JupyterHubServer(proxy.info.url, token_of(hub, "light-max"), user_options=options) as server:
            assert server.started
        assert proxy.cuts == 2
    assert servers(hub, "light-max") == {}


def test_a_lost_answer_to_the_request_to_start_starts_nothing_twice(hub: HubHost) -> None:
    info = JupyterConnectionInfo.from_url(hub.hub_url)
    with (
        CuttingProxy(
            info, cut_after_bytes=1, cut_requests_to="POST /hub/api/users/light-max/server", max_cuts=1
        ) as proxy,
        JupyterHubServer(proxy.info.url, token_of(hub, "light-max")) as server,
    ):
        assert server.started
    assert proxy.cuts == 1
    assert servers(hub, "light-max") == {}


def test_failed_restart_leaves_clients_their_token(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-pam")) as server:
        key, before = key_of(server), server.connection_info
        stop_behind_its_back(hub, "light-pam")
        server._user_options = {"fail": "no room on the cluster"}
        with pytest.raises(ServerStartFailed, match="no room"):
            server.start()
        assert (server.connection_info, key_of(server)) == (before, key)
        server._user_options = {"slow": 0}
        server.start()
        assert key_of(server) == key
        assert is_known(hub, key)
        # What clients copied at first tells now of the server that runs now.
        assert before.why_lost is not None
        assert before.why_lost() is None
        stop_behind_its_back(hub, "light-pam")
        assert "was stopped" in str(before.why_lost())
    assert not is_known(hub, key)


def test_a_forked_child_leaves_the_server_running(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-rob")) as server:
        with child(server.stop):
            pass
        assert servers(hub, "light-rob")[""]["ready"]
        assert is_known(hub, key_of(server))
    assert servers(hub, "light-rob") == {}


def test_restart_replaces_a_token_that_has_ended(hub: HubHost) -> None:
    with JupyterHubServer(hub.hub_url, token_of(hub, "light-quin")) as server:
        key = key_of(server)
        hub.revoke_token("light-quin", key)
        server.start()
        assert key_of(server) != key
        assert is_known(hub, key_of(server))
    assert "jupyter_exec_ext" not in tokens(hub, "light-quin")


def test_stopped_server_raises_client_error_without_token(hub: HubHost) -> None:
    token = token_of(hub, "light-ned")
    server = JupyterHubServer(hub.hub_url, token)
    own = canaries.note(str(server.connection_info.token))
    for text in (repr(server), repr(server.connection_info), repr(vars(server))):
        assert token not in text
        assert own not in text
    server.stop()
    server.stop()
    with pytest.raises(ClientError, match=r"start\(\)"):
        server.connection_info  # noqa: B018
    assert repr(server) == f"JupyterHubServer({hub.hub_url.removesuffix('hub/')!r}, user='light-ned', server_name='')"


@only_in_full
def test_a_hub_that_is_full_starts_nothing_and_keeps_no_token(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text("c.JupyterHub.active_server_limit = 1\n")
    with running_hub(tmp_path, UNPROTECTED, recipe=recipe) as full:
        full.api("POST", "/users/ola")
        with pytest.raises(LimitReached):
            JupyterHubServer(full.hub_url, full.hub_token, user="ola")
        assert "jupyter_exec_ext" not in tokens(full, "ola")


@pytest.mark.parametrize(
    ("url", "base_url"),
    [
        ("https://h/", "/"),
        ("https://h/hub/", "/"),
        ("https://h/hub/home", "/"),
        ("https://h/hub/api", "/"),
        ("https://h/jupyter/hub/token", "/jupyter/"),
        ("https://h/jupyter", "/jupyter/"),
        ("https://h/hub/hub/", "/hub/"),
        ("https://h/user/ada/lab", "/"),
        ("https://h/jupyter/user/hub/lab/tree", "/jupyter/"),
    ],
)
def test_hub_address_is_found_from_any_page(url: str, base_url: str) -> None:
    assert hub_at(JupyterConnectionInfo.from_url(url)).base_url == base_url


def test_a_server_on_a_host_of_its_own_is_found_there_and_never_without_https() -> None:
    hub = JupyterConnectionInfo("hub.example", True, 8443, "t", "/jupyter/", "ca.pem")
    below = server_at("/jupyter/user/a%20b/lab/", hub, "the Hub", "own")
    assert (below.url, below.token) == ("https://hub.example:8443/jupyter/user/a%20b/lab/", "own")
    apart = server_at("https://ada.hub.example/user/ada/", hub, "the Hub", "own")
    assert (apart.url, apart.token, apart.verify) == ("https://ada.hub.example/user/ada/", "own", "ca.pem")
    for url in ("http://ada.hub.example/user/ada/", "", "user/ada/"):
        with pytest.raises(UnexpectedAnswer):
            server_at(url, hub, "the Hub", "own")


@pytest.mark.parametrize("known", ["first", ""], ids=["start time known", "any server"])
@pytest.mark.parametrize(
    "last",
    [{"ready": False, "pending": None, "started": None}, {"ready": True, "pending": None, "started": "second"}],
    ids=["stopped", "started anew"],
)
def test_stop_waits_for_the_end_of_one_server_and_not_of_the_next_one(known: str, last: dict[str, Any]) -> None:
    stopping = {"ready": True, "pending": "stop", "started": "first"}
    models = [stopping, stopping, stopping, last] if known else [stopping, stopping, last]
    operation = HubServerApi("ada").stop(known)
    pauses = 0
    step = next(operation)
    with contextlib.suppress(StopIteration):
        while True:
            if isinstance(step, Pause):
                pauses += 1
                step = operation.send(None)
            elif isinstance(step, Request) and step.method == "DELETE":
                step = operation.send(Reply(202, {}, b""))
            else:
                step = operation.send(Reply(200, {}, json.dumps({"servers": {"": models.pop(0)}}).encode()))
    assert (models, pauses) == ([], 2)
