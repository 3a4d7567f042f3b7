"""Secrets in real sandboxes: code uses them through the proxy, and finds the value nowhere."""

from __future__ import annotations

import base64
import json
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from aiohttp import web

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions import session_networks
from jupyter_exec_ext.errors import InvalidRequest, PolicyDenied
from jupyter_exec_ext.models import ExecutionRequest, SecretRequest, Session, SessionRequest, TokenRequest
from tests.isolation.network.servers import Seen, listen, make_application, start
from tests.isolation.network.test_proxy_programs import make_wheel
from tests.support.audit_records import audit_records
from tests.support.full import scaled
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.timeout(300)]
ME = owner("me", {"username": "me"})
HEADER = "Authorization: Bearer {}"
VALUE = f"value-{secrets.token_hex(16)}"
_WAIT_SECONDS = 240.0
_USES = scaled(1000, per_commit=20)
_ATTEMPTS = scaled(200, per_commit=10)
# Code of a session: requests over TLS with one connection each, as most programs make them.
_TOOLS = """
import base64, json, os, ssl, urllib.error, urllib.request
TOKEN = os.environ.get("API_TOKEN", "")
def fetch(url, body=None, **headers):
    request = urllib.request.Request(url, body, {name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
"""


@dataclass
class Using:
    """An engine with the secret ``API_TOKEN`` for ``api.test``, the bearer of a token, and the servers it reaches."""

    engine: ExecEngine
    caller: Caller
    port: int
    seen: Seen

    async def begin(self) -> Session:
        return await self.engine.create_session(self.caller, SessionRequest())

    async def run(self, session: Session, code: str) -> Any:
        """Run code that ends with the name of a value; return the value."""
        text = f"{_TOOLS}\nAPI = 'https://api.test:{self.port}'\nOTHER = 'https://other.test:{self.port}'\n{code}"
        handle = await self.engine.execute(self.caller, session.id, ExecutionRequest(text))
        ended = await self.engine.get_execution(self.caller, handle.record.id, _WAIT_SECONDS)
        assert ended.error is None, ended.error
        return json.loads(ended.stdout)

    def sent(self, name: str = "Authorization") -> list[str]:
        """Return the values of a header that the servers got."""
        return [headers.get(name, "") for _, _, headers, _ in self.seen.requests]


Begin = Callable[..., Awaitable[Using]]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[int, Path, Seen]]:
    """A server for TLS that answers with what it was sent; its port, its authority and its requests."""
    authority, seen = trustme.CA(), Seen()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.test", "other.test").configure_cert(context)
    path = tmp_path / "servers-ca.pem"
    authority.cert_pem.write_to_path(str(path))
    sock = listen()
    end = await start(make_application(seen), sock, context)
    yield sock.getsockname()[1], path, seen
    await end()


@pytest.fixture
async def begin(make_engine: Callable[..., ExecEngine], servers: tuple[int, Path, Seen]) -> Begin:
    port, authority, seen = servers

    async def make(*, sets: bool = True, limits: dict[str, Any] | None = None, **policy: Any) -> Using:
        fields = {"network": [f"api.test:{port}", f"other.test:{port}"], "secrets": ["API_TOKEN"], **policy}
        engine = make_engine(
            policies={"net": {"isolation": "sandbox", **fields}},
            network_hosts={"api.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]},
            network_ca_file=str(authority),
        )
        if sets:
            await engine.secrets.put(ME, "API_TOKEN", SecretRequest(VALUE, [f"api.test:{port}"], HEADER))
        request = TokenRequest("agent", "net", scopes=sorted(ALL_SCOPES), limits=limits or {})
        issued = await engine.tokens.create(ME, request)
        return Using(engine, engine.tokens.authenticate(issued.text, "127.0.0.1"), port, seen)

    return make


def _memory_of(pid: int) -> bytes:
    """Return all memory of a process that can be read."""
    parts = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            first, last = (int(part, 16) for part in span.split("-"))
            if rights.startswith("r") and first < 1 << 47:
                with suppress(OSError, ValueError):  # some special parts cannot be read
                    memory.seek(first)
                    parts.append(memory.read(last - first))
    return b"".join(parts)


def _processes_of(session: Session) -> list[psutil.Process]:
    """Return the processes in the sandbox of a session."""
    mark = f"JUPYTER_EXEC_SESSION={session.id}".encode()
    found = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


async def test_code_uses_the_value_and_finds_it_nowhere(
    begin: Begin, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    using = await begin()
    session = await using.begin()
    code = f"found = [fetch(API + '/echo', Authorization='Bearer ' + TOKEN) for _ in range({_USES})]"
    answers = await using.run(session, f"{code}\nprint(json.dumps(found))")
    assert using.sent() == [f"Bearer {VALUE}"] * _USES
    placeholder = await using.run(session, "print(json.dumps(TOKEN))")
    assert all(status == 200 and placeholder in text for status, text in answers), answers[:3]
    await using.run(session, "open('kept.txt', 'w').write(repr(found)); print(1)")
    forms = [VALUE.encode(), base64.b64encode(VALUE.encode())]
    kernels = _processes_of(session)
    store = Path(using.engine._store.directory)  # type: ignore[attr-defined]
    await until(lambda: len(using.engine.networks.describe(session.id, "sandbox").requests) >= min(_USES, 200))
    records = await audit_records(using.engine)
    places = {
        "kernel environment": b"".join(Path(f"/proc/{each.pid}/environ").read_bytes() for each in kernels),
        "kernel memory": b"".join(_memory_of(each.pid) for each in kernels),
        "files": b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()),
        "database": b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file()),
        "log": caplog.text.encode(),
        "audit": json.dumps(records).encode(),
        "answers": repr((answers, await using.engine.secrets.list())).encode(),
        "network": repr(asdict(using.engine.networks.describe(session.id, "sandbox"))).encode(),
    }
    assert placeholder.encode() in places["kernel environment"] and placeholder.encode() in places["kernel memory"]
    assert b"API_TOKEN" in places["audit"] and b"API_TOKEN" in places["database"] and b"API_TOKEN" in places["network"]
    assert {name: sum(map(text.count, forms)) for name, text in places.items()} == dict.fromkeys(places, 0)
    used = [each for each in records if each["kind"] == "network" and each["data"].get("secrets") == ["API_TOKEN"]]
    assert len(used) == _USES
    sizes = {name: len(text) for name, text in places.items()}
    print(f"used {_USES} of {_USES}; value found 0 times in {sizes}, {len(kernels)} processes")


# Each sends the placeholder where it is not filled in. `n` numbers the attempts.
_WRONG = """
WAYS = [
    lambda: fetch(OTHER + '/echo', Authorization='Bearer ' + TOKEN),
    lambda: fetch(OTHER + '/echo', Authorization='Basic ' + base64.b64encode(b'u:' + TOKEN.encode()).decode()),
    lambda: fetch(OTHER + '/echo?token=' + TOKEN),
    lambda: fetch(OTHER + '/echo', TOKEN.encode()),
    lambda: fetch(OTHER + '/' + TOKEN),
    lambda: fetch(API + '/echo', X_Other=TOKEN),
    lambda: fetch(API + '/echo?token=' + TOKEN),
    lambda: fetch(API + '/echo', TOKEN.encode()),
    lambda: fetch(API + '/redirect?to=' + OTHER + '/echo'),
    lambda: fetch(API.replace('https', 'http') + '/echo', Authorization='Bearer ' + TOKEN),
]
print(json.dumps([WAYS[n % len(WAYS)]() for n in range(NUMBER)]))
"""


async def test_value_is_sent_to_no_other_host_and_in_no_other_place(begin: Begin) -> None:
    using = await begin()
    session = await using.begin()
    answers = await using.run(session, _WRONG.replace("NUMBER", str(_ATTEMPTS)))
    assert len(answers) == _ATTEMPTS
    leaked = []
    for method, path, headers, body in using.seen.requests:
        # Only this header of this host may have it.
        right = headers.pop("Authorization", "") if headers["Host"].startswith("api.test") else ""
        if VALUE in repr((path, headers, body)):
            leaked.append((method, path, right))
    assert leaked == []
    assert VALUE not in repr(answers)
    refused = [each for each in using.engine.networks.describe(session.id, "sandbox").requests if each.reason]
    assert any("the placeholder of secret 'API_TOKEN' is in the URL" in each.reason for each in refused)
    print(f"{_ATTEMPTS} attempts, value sent elsewhere: {len(leaked)}")


async def test_new_value_reaches_running_sessions_and_a_deleted_secret_is_no_longer_sent(begin: Begin) -> None:
    using = await begin()
    session = await using.begin()
    fetch = "print(json.dumps(fetch(API + '/echo', Authorization='Bearer ' + TOKEN)[0]))"
    assert await using.run(session, fetch) == 200
    changed = await using.engine.secrets.put(ME, "API_TOKEN", SecretRequest("another-value"))
    assert changed.header == HEADER
    assert await using.run(session, fetch) == 200
    await using.engine.secrets.delete(ME, "API_TOKEN")
    await using.run(session, fetch)
    assert [text for text in using.sent() if not text.startswith("Bearer jupyter-exec-secret-")] == [
        f"Bearer {VALUE}",
        "Bearer another-value",
    ]
    records = await audit_records(using.engine)
    actions = [each["action"] for each in records if each["kind"] == "secret"]
    assert actions == ["set", "changed", "deleted"]


async def test_change_and_deletion_by_another_server_reach_running_sessions_until_the_last_one_ends(
    begin: Begin,
    make_engine: Callable[..., ExecEngine],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(session_networks, "_REFRESH_SECONDS", 0.05)
    using, other = await begin(), make_engine()
    networks = using.engine.networks
    first, second = await using.begin(), await using.begin()

    def values() -> list[str]:
        return [each.value for network in networks._networks.values() for each in network.access.secrets]

    await other.secrets.put(ME, "API_TOKEN", SecretRequest("another-value"))
    await until(lambda: values() == ["another-value"] * 2)
    await using.engine.delete_session(using.caller, second.id)
    await until(lambda: len(networks._networks) == 1)
    key_file = Path(using.engine._store.directory) / "secrets.key"  # type: ignore[attr-defined]
    key_file.chmod(0o644)
    await until(lambda: "changes of secrets by other servers are not seen" in caplog.text)
    key_file.chmod(0o600)
    fetch = "print(json.dumps(fetch(API + '/echo', Authorization='Bearer ' + TOKEN)[0]))"
    await using.run(first, fetch)
    await other.secrets.delete(ME, "API_TOKEN")
    await until(lambda: values() == [])
    await using.run(first, fetch)
    assert using.sent()[0] == "Bearer another-value" and "value" not in using.sent()[1]
    await other.secrets.put(ME, "API_TOKEN", SecretRequest(VALUE, [f"api.test:{using.port}"], HEADER))
    await until(lambda: values() == [VALUE])
    assert networks._refreshing is not None
    await using.engine.delete_session(using.caller, first.id)
    await until(lambda: networks._refreshing is None)


async def test_each_session_has_its_own_placeholder_also_from_the_pool_and_after_a_restart(begin: Begin) -> None:
    using = await begin()
    show = "print(json.dumps([TOKEN, fetch(API + '/echo', Authorization='Bearer ' + TOKEN)[0]]))"
    first = await using.begin()
    before = await using.run(first, show)
    await using.engine.restart_session(using.caller, first.id)
    assert await using.run(first, show) == before
    await until(lambda: using.engine.pool.ready == 1)
    second = await using.begin()
    pooled = await using.run(second, show)
    assert (before[1], pooled[1]) == (200, 200)
    assert before[0] != pooled[0] and len(pooled[0]) > 40
    crossed = f"print(json.dumps(fetch(API + '/echo', Authorization='Bearer {before[0]}')[0]))"
    await using.run(second, crossed)
    assert using.sent()[-1] == f"Bearer {before[0]}"  # worth nothing in another session
    assert using.sent()[:3] == [f"Bearer {VALUE}"] * 3


async def test_session_without_its_secret_does_not_start(begin: Begin) -> None:
    using = await begin(sets=False)
    with pytest.raises(PolicyDenied, match="uses the secret API_TOKEN: it does not exist; the server's owner can run"):
        await using.begin()
    await using.engine.secrets.put(ME, "API_TOKEN", SecretRequest(VALUE, ["elsewhere.test"], HEADER))
    with pytest.raises(PolicyDenied, match=r"no network rule allows elsewhere\.test"):
        await using.begin()
    await using.engine.secrets.put(ME, "API_TOKEN", SecretRequest(VALUE, [f"api.test:{using.port}"], HEADER))
    with pytest.raises(InvalidRequest, match="'env' may not set 'API_TOKEN'"):
        await using.engine.create_session(using.caller, SessionRequest(env={"API_TOKEN": "x"}))


async def test_token_can_have_fewer_secrets_than_its_policy(begin: Begin) -> None:
    using = await begin(limits={"secrets": []})
    session = await using.begin()
    assert await using.run(session, "print(json.dumps(TOKEN))") == ""


async def test_secrets_with_one_header_for_one_host_are_refused(begin: Begin) -> None:
    using = await begin(secrets=["API_TOKEN", "OTHER_TOKEN"])
    await using.engine.secrets.put(
        ME, "OTHER_TOKEN", SecretRequest(VALUE, [f"api.test:{using.port}"], "authorization: Bearer {}")
    )
    with pytest.raises(PolicyDenied, match=r"OTHER_TOKEN: API_TOKEN has the same header for api\.test"):
        await using.begin()


async def test_pip_installs_from_a_private_index_with_a_secret(begin: Begin, tmp_path: Path) -> None:
    directory = tmp_path / "wheels"
    directory.mkdir()
    wheel = make_wheel(directory)
    wanted = "Basic " + base64.b64encode(f"user:{VALUE}".encode()).decode()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != wanted:
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic realm=x"})
        if request.path.endswith(".whl"):
            return web.FileResponse(wheel)
        link = f'<!DOCTYPE html><html><body><a href="/{wheel.name}">{wheel.name}</a></body></html>'
        return web.Response(text=link, content_type="text/html")

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.test").configure_cert(context)
    application, sock = web.Application(), listen()
    application.router.add_get("/{rest:.*}", answer)
    end = await start(application, sock, context)
    try:
        host = f"api.test:{sock.getsockname()[1]}"
        using = await begin(network=[host])
        authority.cert_pem.write_to_path(using.engine.network_ca_file, append=True)
        await using.engine.secrets.put(ME, "API_TOKEN", SecretRequest(VALUE, [host], HEADER))
        session = await using.begin()
        code = f"""
import subprocess, sys
url = f"https://user:{{TOKEN}}@{host}/simple"
command = [sys.executable, "-m", "pip", "install", "-v", "--target", "target", "--index-url", url, "demo-package"]
done = subprocess.run(command, capture_output=True, text=True, env={{**os.environ, "PIP_CONFIG_FILE": os.devnull}})
sys.path.insert(0, "target")
import demo_package
print(json.dumps([done.returncode, demo_package.ANSWER, done.stdout + done.stderr]))
"""
        code_of_pip, found, text = await using.run(session, code)
    finally:
        await end()
    assert (code_of_pip, found) == (0, 42), text
    assert VALUE not in text
