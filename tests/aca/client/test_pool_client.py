"""The clients of session pools against a stand-in for the service: calls, tokens, and where the token may go."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from jupyter_exec_ext import ACAClient, AccessToken, AsyncACAClient
from jupyter_exec_ext.aca.client import pool_transport
from jupyter_exec_ext.aca.client.pool_transport import PoolTimes, PoolTransport
from jupyter_exec_ext.aca.protocol.addresses import API_VERSIONS, DEFAULT_API_VERSION, SCOPE
from jupyter_exec_ext.aca.protocol.run_format import RunStatus
from jupyter_exec_ext.client.api.steps import GetToken
from jupyter_exec_ext.errors import (
    ClientError,
    Conflict,
    ConnectionFailed,
    ExecError,
    FileNotFound,
    Forbidden,
    InternalError,
    InvalidRequest,
    LimitReached,
    NotFound,
    PayloadTooLarge,
    PropertiesMissing,
    SessionNotFound,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from tests.aca.client.pool_service import POOL, ACAService, Answer, AsyncTokens, Seen, Tokens, error
from tests.support.hosts import free_port

LEGAL = "abcABC019_|{}[]:\";'<>?/.,@#$%^&*()-+=!~`"
# 50 that no identifier may hold, anywhere in it.
ILLEGAL = [*(chr(n) for n in range(33)), "\x7f", "\\", *"äößéñ日本語🙂\u200b\u202e\ud800\xa0\u00ad\uff5e"]


# --- runs ---


@pytest.mark.parametrize("api_version", API_VERSIONS)
def test_code_runs_in_both_families(aca: Any, service: ACAService, api_version: str) -> None:
    client = aca(api_version=api_version)
    result = client.run("user-1", "# value: 2")
    assert (result.status, result.ok, result.stdout, result.value) == (RunStatus.SUCCEEDED, True, "run 1\n", 2)
    failed = client.run("user-1", "# failed: ValueError: no", timeout_seconds=7.2)
    assert (failed.status, failed.ok, failed.stderr) == (RunStatus.FAILED, False, "ValueError: no")
    sent = json.loads(service.seen[-1].body)
    assert sent.get("properties", sent)["timeoutInSeconds"] == 8
    assert service.seen[-1].query == {"identifier": ["user-1"], "api-version": [api_version]}


def test_the_newest_version_is_told_how_much_output_is_wanted(aca: Any, service: ACAService) -> None:
    client = aca()
    client.run("user-1", "1")
    assert json.loads(service.seen[-1].body)["outputStreamsMaxLength"] == 2**20
    client.run("user-1", "1", streams_max_length=None, jupyter_format=True, timeout_seconds=None)
    sent = json.loads(service.seen[-1].body)
    assert sent == {
        "codeInputType": "inline",
        "executionType": "synchronous",
        "code": "1",
        "returnJupyterFormatExecutionResult": True,
    }


def test_a_run_that_is_not_ended_with_its_answer_is_asked_for(aca: Any, service: ACAService) -> None:
    result = aca().run("user-1", "# running: yes")
    assert (result.ok, result.stdout) == (True, "late")
    assert [seen.method for seen in service.seen] == ["POST", "GET"]
    assert service.seen[-1].path.endswith("/executions/e1")


# --- sessions ---


def test_a_session_is_told_of_and_ended_in_the_version_that_can(aca: Any, service: ACAService) -> None:
    client = aca(api_version="2024-02-02-preview")
    client.run("user-1", "1")
    info = client.session("user-1")
    assert (info.identifier, info.expires_at) == ("user-1", "2026-01-02T03:09:05Z")
    client.delete_session("user-1")
    assert service.sessions == {}
    assert service.seen[-1].query["api-version"] == ["2025-10-02-preview"]
    client.delete_session("user-1")
    with pytest.raises(SessionNotFound):
        client.session("user-1")
    assert client.metadata()["runtimes"][0]["name"] == "Python"


def test_every_legal_character_keeps_its_session_apart(aca: Any, service: ACAService) -> None:
    client = aca()
    names = [f"us{character}r{end}" for character in LEGAL for end in ("", "1")] + [
        "a%2Fb",
        "a/b.",
        "a+b.",
        "a b.".replace(" ", "%20"),
    ]
    for name in names:
        name = name.ljust(4, ".")
        assert client.run(name, f"mine {name}").stdout == "run 1\n", name
        assert service.seen[-1].query == {"identifier": [name], "api-version": ["2025-10-02-preview"]}
    assert len(service.sessions) == len(names)
    assert all(session.runs == [f"mine {name}"] for name, session in service.sessions.items())


def test_an_identifier_that_is_not_allowed_is_never_sent(aca: Any, service: ACAService) -> None:
    client = aca()
    assert len(set(ILLEGAL)) >= 50
    for bad in ILLEGAL:
        for name in (f"user{bad}", f"{bad}user", f"us{bad}er"):
            with pytest.raises(InvalidRequest):
                client.run(name, "1")
    for name in ("", "abc", "x" * 129):
        with pytest.raises(InvalidRequest):
            client.run(name, "1")
    assert service.seen == []


# --- files ---


@pytest.mark.parametrize("api_version", API_VERSIONS)
def test_files_go_there_and_back(aca: Any, service: ACAService, api_version: str, tmp_path: Path) -> None:
    client = aca(api_version=api_version)
    content = bytes(range(256)) * 9000 + b"\r\n--"
    (tmp_path / "local.bin").write_bytes(content)
    for source in (content, tmp_path / "local.bin", str(tmp_path / "local.bin"), io.BytesIO(content)):
        file = client.upload("user-1", "dir/t 1#ü.txt", source)
        assert (file.path, file.size_bytes) == ("dir/t 1#ü.txt", len(content))
        assert service.sessions["user-1"].files.pop("dir/t 1#ü.txt") == content
    client.upload("user-1", "/mnt/data/a.txt", b"")
    client.upload("user-1", "100%.txt", content)
    listed = client.files("user-1")
    assert [(f.path, f.size_bytes) for f in listed] == [("100%.txt", len(content)), ("a.txt", 0)]
    assert client.download("user-1", "100%.txt") == content
    assert client.download("user-1", "a.txt") == b""
    assert client.download("user-1", "100%.txt", tmp_path / "back") is None
    assert (tmp_path / "back").read_bytes() == content
    assert client.download("user-1", "100%.txt", tmp_path) is None
    assert (tmp_path / "100%.txt").read_bytes() == content
    target = io.BytesIO()
    target.write(b"before")
    assert client.download("user-1", "100%.txt", target) is None
    assert target.getvalue() == b"before" + content
    client.delete_file("user-1", "a.txt")
    with pytest.raises(NotFound):
        client.delete_file("user-1", "a.txt")
    with pytest.raises(NotFound):
        client.download("user-1", "a.txt", tmp_path / "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["100%.txt", "back", "local.bin"]


def test_an_upload_announces_its_length_where_it_is_known(aca: Any, service: ACAService) -> None:
    client = aca()
    client.upload("user-1", "a", b"x" * 3_000_000)
    assert int(service.seen[-1].headers["content-length"]) == len(service.seen[-1].body)

    class Pipe(io.RawIOBase):
        """Can be read once only."""

        left = 3

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return b"y" * 1000 if self.left >= 0 else b""

    client.upload("user-1", "b", Pipe())
    assert service.seen[-1].headers["transfer-encoding"] == "chunked"
    assert service.sessions["user-1"].files["b"] == b"y" * 3000

    service.overrides.append(lambda seen: error(429, "TooManyRequests", "full") if seen.method == "POST" else None)
    asked = len(service.seen)
    with pytest.raises(LimitReached):
        client.upload("user-1", "c", Pipe())
    assert len(service.seen) == asked + 1, (
        "what can be read once only must not be sent a second time, without its content"
    )


def test_a_list_is_followed_to_its_end_and_nowhere_else(aca: Any, service: ACAService) -> None:
    client = aca()
    service.page_size = 2
    for number in range(7):
        client.upload("user-1", f"f{number}", b"x")
    assert [file.path for file in client.files("user-1")] == [f"f{number}" for number in range(7)]
    with ACAService() as thief:
        own = service.endpoint
        for link in (
            f"{thief.endpoint}/files?skip=2",
            f"//127.0.0.1:{thief.server_port}/files",
            f"{own}@127.0.0.1:{thief.server_port}/files",
            f"{own.replace('/p', '/q')}/files",
            f"{own}/files/../../q/files",
            "https://127.0.0.1/files",
            "\\\\127.0.0.1\\files",
            "javascript:1",
        ):
            service.next_link = lambda seen, skip, link=link: link  # type: ignore[method-assign, misc]
            with pytest.raises(UnexpectedAnswer, match="not the session pool's"):
                client.files("user-1")
        assert thief.seen == []
    first = service.seen[-1]
    service.next_link = lambda seen, skip: f"{own}/files?identifier=user-1&api-version={first.query['api-version'][0]}"  # type: ignore[method-assign]
    with pytest.raises(UnexpectedAnswer, match="pages"):
        client.files("user-1")


def test_directories_are_asked_for_as_paths(aca: Any, service: ACAService) -> None:
    client = aca()
    client.upload("user-1", "a/b/c.txt", b"1")
    assert [file.path for file in client.files("user-1", "/mnt/data/a/b/")] == ["a/b/c.txt"]
    assert [file.path for file in client.files("user-1", recursive=True)] == ["a/b/c.txt"]
    for path in ("../x", "/etc/passwd", "a//b", ""):
        with pytest.raises(InvalidRequest):
            client.upload("user-1", path, b"")


def test_what_goes_wrong_with_a_local_file_is_told_as_it_is(aca: Any, service: ACAService, tmp_path: Path) -> None:
    client = aca()
    with pytest.raises(FileNotFoundError):
        client.upload("user-1", "a", tmp_path / "none")
    client.upload("user-1", "a", b"x")
    with pytest.raises(FileNotFoundError):
        client.download("user-1", "a", tmp_path / "no" / "directory")


# --- tokens ---


def test_a_token_is_asked_for_once_and_with_the_scope(aca: Any, service: ACAService) -> None:
    credential = Tokens(service)
    client = aca(credential=credential)
    for _ in range(5):
        client.run("user-1", "1")
    assert credential.asked == [((SCOPE,), {})]


def test_calls_at_the_same_time_wait_for_one_token(service: ACAService) -> None:
    class Slow(Tokens):
        def get_token(self, *scopes: str, **options: Any) -> Any:
            entered.wait(10)
            return super().get_token(*scopes, **options)

    entered = threading.Barrier(2)
    credential = Slow(service)
    with ACAClient(service.endpoint, credential) as client, ThreadPoolExecutor(20) as pool:
        results = [pool.submit(client.run, f"user-{n}", "1") for n in range(20)]
        entered.wait(10)
        assert all(result.result().ok for result in results)
    assert len(credential.asked) == 1


async def test_a_credential_that_blocks_does_not_hold_up_the_event_loop(service: ACAService) -> None:
    release = threading.Event()

    class Slow(Tokens):
        def get_token(self, *scopes: str, **options: Any) -> Any:
            assert release.wait(10)
            return super().get_token(*scopes, **options)

    credential = Slow(service)
    async with AsyncACAClient(service.endpoint, credential) as client:
        runs = [asyncio.create_task(client.run(f"user-{n}", "1")) for n in range(20)]
        for _ in range(100):
            await asyncio.sleep(0)  # the loop goes on while the credential waits for it
        release.set()
        assert all(result.ok for result in await asyncio.gather(*runs))
    assert len(credential.asked) == 1


async def test_a_call_that_is_given_up_leaves_the_others_their_token(service: ACAService) -> None:
    asked = asyncio.Event()
    release = asyncio.Event()

    class Slow(AsyncTokens):
        async def get_token(self, *scopes: str, **options: Any) -> Any:
            asked.set()
            await release.wait()
            return await super().get_token(*scopes, **options)

    credential = Slow(service)
    async with AsyncACAClient(service.endpoint, credential) as client:
        first, second = (asyncio.create_task(client.run("user-1", "1")) for _ in range(2))
        await asked.wait()
        first.cancel()
        release.set()
        assert (await second).ok
        with pytest.raises(asyncio.CancelledError):
            await first
    assert len(credential.asked) == 1


@pytest.mark.parametrize("claims", [None, {"access_token": {"nbf": {"essential": True}}}])
def test_a_token_that_is_refused_is_fetched_anew_once(aca: Any, service: ACAService, claims: Any) -> None:
    credential = Tokens(service)
    client = aca(credential=credential)
    client.run("user-1", "1")
    encoded = base64.b64encode(json.dumps(claims).encode()).decode()
    challenge = f'Bearer realm="", error="insufficient_claims", claims="{encoded}"' if claims else "Bearer"

    def refuse(seen: Seen) -> Answer | None:
        if seen.headers["authorization"] == f"Bearer {credential.given[0]}":
            return Answer(401, {"error": {"code": "Unauthorized"}}, {"WWW-Authenticate": challenge})
        return None

    service.overrides.append(refuse)
    assert client.run("user-1", "again").ok
    assert [options for _, options in credential.asked] == [{}, {"claims": json.dumps(claims)} if claims else {}]
    assert service.markers["again"] == 1
    service.overrides.append(lambda seen: error(401, "Unauthorized", "never"))
    asked = len(credential.asked)
    with pytest.raises(Unauthenticated, match="scope"):
        client.run("user-1", "again")
    assert len(credential.asked) == asked + 1


def test_a_thousand_calls_with_tokens_of_one_second_do_not_fail(service: ACAService) -> None:
    """Twenty at a time, through both clients; the service refuses a token from its end on."""
    for credential in (Tokens(service, 1.0), AsyncTokens(service, 1.0)):

        async def calls(credential: Any = credential) -> int:
            async with AsyncACAClient(service.endpoint, credential) as client:
                gate = asyncio.Semaphore(20)

                async def one(number: int) -> bool:
                    async with gate:
                        return (await client.run(f"user-{number % 7}", f"# sleep: 0.05\n# {number}")).ok

                return sum(await asyncio.gather(*(one(n) for n in range(500))))

        if isinstance(credential, AsyncTokens):
            assert asyncio.run(calls()) == 500
        else:
            with ACAClient(service.endpoint, credential) as client, ThreadPoolExecutor(20) as pool:
                runs = pool.map(lambda n: client.run(f"user-{n % 7}", f"# sleep: 0.05\n# sync {n}").ok, range(500))
                assert sum(runs) == 500
        assert len(credential.asked) >= 3
    assert max(service.markers.values()) == 1
    print(f"1,000 calls, 0 failures, {service.refused_tokens} of them refused a token on the way")


def test_whole_second_tokens_that_end_at_once_do_not_fail(aca: Any, service: ACAService) -> None:
    """As Azure gives them: the end is a whole second, which may be over before the request arrives."""

    class Whole(Tokens):
        def get_token(self, *scopes: str, **options: Any) -> Any:
            given = super().get_token(*scopes, **options)
            service.tokens[given.token] = int(time.time()) + 1
            return AccessToken(given.token, int(time.time()) + 1)

    client = aca(credential=Whole(service))
    assert all(client.run("user-1", "# sleep: 0.01").ok for _ in range(200))


@pytest.mark.parametrize(
    "given",
    [None, "text", AccessToken("", 9e9), AccessToken("a b", 9e9), AccessToken("a\nb", 9e9), AccessToken("s3", True)],
)
def test_what_is_no_token_is_never_sent(aca: Any, service: ACAService, given: Any) -> None:
    class Odd:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            return given

    with pytest.raises(Unauthenticated, match="access token"):
        aca(credential=Odd()).run("user-1", "1")
    assert service.seen == []


def test_a_credential_that_fails_is_named_and_what_it_raised_is_the_cause(aca: Any, service: ACAService) -> None:
    class Broken:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            raise RuntimeError("with the s3cret in it")

    with pytest.raises(Unauthenticated, match="Broken gave no access token: it raised RuntimeError") as caught:
        aca(credential=Broken()).run("user-1", "1")
    assert "s3cret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_credential_that_hangs_does_not_hold_up_the_call(aca: Any, service: ACAService) -> None:
    release = threading.Event()

    class Hanging:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            release.wait(30)
            raise RuntimeError

    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match="in time"):
        aca(credential=Hanging(), max_wait_seconds=0, request_timeout_seconds=0.3).metadata()
    assert time.monotonic() - began < 20
    release.set()


def test_token_that_comes_too_late_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(pool_transport, "time", SimpleNamespace(monotonic=lambda: now[0]))
    transport = PoolTransport("https://x", DEFAULT_API_VERSION, PoolTimes(request_seconds=5))
    calling = transport.request("GET", "metadata", None)
    assert isinstance(next(calling), GetToken)
    now[0] += 6.5
    with pytest.raises(ConnectionFailed, match=r"not sent: the credential took 6\.5 s .* time limit is 5 s"):
        calling.send(AccessToken("t", 9e9))


async def test_a_client_is_closed_while_its_credential_hangs(service: ACAService) -> None:
    asked, release, left = threading.Event(), threading.Event(), threading.Event()

    class Hanging(Tokens):
        def get_token(self, *scopes: str, **options: Any) -> Any:
            asked.set()
            release.wait(30)
            left.set()
            return super().get_token(*scopes, **options)

    client = AsyncACAClient(service.endpoint, Hanging(service))
    run = asyncio.create_task(client.run("user-1", "1"))
    assert await asyncio.to_thread(asked.wait, 10)
    await client.aclose()
    with pytest.raises(ConnectionFailed):
        await run
    release.set()
    assert await asyncio.to_thread(left.wait, 10)
    for thread in threading.enumerate():
        if thread.name == "access token":
            await asyncio.to_thread(thread.join, 10)
    assert service.seen == []
    with pytest.raises(ClientError, match="closed"):
        await client.metadata()


def test_the_token_is_seen_nowhere(
    aca: Any, service: ACAService, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    credential = Tokens(service)
    client = aca(credential=credential, max_wait_seconds=0)
    client.run("user-1", "1")
    shown = [
        repr(client),
        repr(AccessToken(credential.given[0], 0)),
        repr(vars(client)) if isinstance(client, ACAClient) else "",
    ]

    def echo(seen: Seen) -> Answer:
        return Answer(400, {"error": {"code": "Odd", "message": f"you sent {seen.headers['authorization']}"}})

    service.overrides.append(echo)
    with pytest.raises(InvalidRequest, match=r"you sent Bearer \*\*\*") as caught:
        client.run("user-1", "1")
    with pytest.raises(ExecError) as lost:
        aca(f"http://127.0.0.1:{free_port()}/x", credential, max_wait_seconds=0).run("user-1", "1")
    shown += [str(caught.value), repr(caught.value), str(lost.value), caplog.text, *capfd.readouterr()]
    assert credential.given[0] not in "".join(shown)
    assert all(credential.given[0] not in str(seen.query) + seen.path for seen in service.seen)


# --- where the token may go ---


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://example.org/pool",
        "https://dynamicsessions.io/pool",
        "https://xdynamicsessions.io/pool",
        "https://a.dynamicsessions.io.example.org/pool",
        "https://example.org\\.dynamicsessions.io/pool",
        "https://example.org%2f.dynamicsessions.io/pool",
        "https://example.org\u2044.dynamicsessions.io/pool",
        "https://user@a.dynamicsessions.io/pool",
        "https://user:word@a.dynamicsessions.io/pool",
        "http://a.dynamicsessions.io/pool",
        "https://a.dynamicsessions.io/pool?x=1",
        "https://a.dynamicsessions.io/pool#x",
        "https://169.254.169.254/pool",
        "http://169.254.169.254/pool",
        "http://[::ffff:169.254.169.254]/pool",
        "https://[::ffff:127.0.0.1]/pool",
        "http://127.0.0.1.example.org/pool",
        "http://localhost.example.org/pool",
        "unix:///run/x",
        "ftp://localhost/pool",
        "localhost:8888",
        "",
        "https://",
    ],
)
def test_an_endpoint_that_is_not_allowed_is_refused(endpoint: str) -> None:
    for kind in (ACAClient, AsyncACAClient):
        with pytest.raises(InvalidRequest):
            kind(endpoint, Tokens.__new__(Tokens))


def test_the_allowed_hosts_are_the_callers_to_widen_but_not_to_do_without_tls() -> None:
    credential = Tokens.__new__(Tokens)
    for endpoint in (
        "https://westus.dynamicsessions.io/subscriptions/s/",
        "https://WestUS.DynamicSessions.io/x",
        "http://localhost:8888/exec/aca",
        "http://[::1]:8888/exec/aca",
    ):
        ACAClient(endpoint, credential).close()
    ACAClient(
        "https://jupyter.example.org/user/ada/exec/aca", credential, allowed_hosts=["jupyter.example.org"]
    ).close()
    with pytest.raises(InvalidRequest, match="allowed_hosts"):
        ACAClient("https://anybodys.env.westus.azurecontainerapps.io", credential)
    with pytest.raises(InvalidRequest, match="https"):
        ACAClient("http://jupyter.example.org/exec/aca", credential, allowed_hosts=["jupyter.example.org"])
    with pytest.raises(InvalidRequest, match="none"):
        ACAClient("http://localhost:8888", credential, allowed_hosts=[])
    with pytest.raises(InvalidRequest, match="known are"):
        ACAClient("http://localhost:8888", credential, api_version="2023-01-01")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed(aca: Any, service: ACAService, status: int) -> None:
    client = aca()
    with ACAService() as thief:
        service.overrides.append(lambda seen: Answer(status, b"", {"Location": f"{thief.endpoint}/files"}))
        for call in (
            lambda: client.run("user-1", "1"),
            lambda: client.files("user-1"),
            lambda: client.download("user-1", "a"),
        ):
            with pytest.raises(UnexpectedAnswer, match="not followed"):
                call()
        assert thief.seen == []


def test_cookies_are_not_kept(aca: Any, service: ACAService) -> None:
    client = aca()
    service.overrides.append(lambda seen: Answer(200, {}, {"Set-Cookie": "session=1; Path=/"}))
    client.metadata()
    client.metadata()
    assert all("cookie" not in seen.headers for seen in service.seen)


def test_tls_is_checked(aca: Any, tmp_path: Path) -> None:
    import ssl

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ACAService(context) as service:
        credential = Tokens(service)
        client = aca(service.endpoint, credential, verify=str(tmp_path / "ca.pem"))
        assert client.run("user-1", "1").ok
        assert client.download("user-1", client.upload("user-1", "a", b"x" * 500_000).path) == b"x" * 500_000
        with pytest.raises(ConnectionFailed):
            aca(service.endpoint, credential, max_wait_seconds=0).run("user-1", "2")
        assert service.markers == {"1": 1}


# --- errors ---


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (400, "SessionRequestValidationFailed", InvalidRequest, "said"),
        (400, "SessionPropertiesMissing", PropertiesMissing, "another api-version"),
        (400, "SessionWithIdentifierNotFound", SessionNotFound, "said"),
        (401, "Unauthorized", Unauthenticated, "scope https://dynamicsessions.io/.default"),
        (403, "Forbidden", Forbidden, "Azure ContainerApps Session Executor"),
        (404, "NotFound", NotFound, "no such pool"),
        (404, "FileNotFound", FileNotFound, "no such file"),
        (409, "Conflict", Conflict, "state"),
        (413, "PayloadTooLarge", PayloadTooLarge, "128 MB"),
        (418, "Teapot", ClientError, "said"),
        (429, "TooManyRequests", LimitReached, "try again later"),
        (500, "InternalServerError", InternalError, "the code may have run"),
        (502, "BadGateway", Unavailable, "the code may have run"),
        (503, "ServiceUnavailable", Unavailable, "the code may have run"),
        (504, "GatewayTimeout", Unavailable, "the code may have run"),
    ],
)
def test_a_refusal_is_readable(
    aca: Any, service: ACAService, status: int, code: str, kind: type[ExecError], words: str
) -> None:
    client = aca(max_wait_seconds=0)
    service.overrides.append(lambda seen: error(status, code, "what it said"))
    with pytest.raises(kind) as caught:
        client.run("user-1", "1")
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert len(service.seen) == (2 if status == 401 else 1)


def test_a_wrong_pool_is_named(aca: Any, service: ACAService) -> None:
    with pytest.raises(NotFound, match="no such pool"):
        aca(service.endpoint.replace(POOL, "/other")).run("user-1", "1")


# --- what is sent again ---


@pytest.mark.parametrize("refusal", [(429, {"Retry-After": "0"}), (429, {}), (503, {"Retry-After": "0"})])
def test_a_run_that_was_refused_for_want_of_room_is_sent_again(aca: Any, service: ACAService, refusal: Any) -> None:
    left = [1, 1, 1]

    def refuse(seen: Seen) -> Answer | None:
        return Answer(refusal[0], {}, refusal[1]) if left and left.pop() else None

    service.overrides.append(refuse)
    assert aca().run("user-1", "once").stdout == "run 1\n"
    assert len(service.seen) == 4
    assert service.markers["once"] == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_run_that_may_have_been_carried_out_is_not_sent_again(aca: Any, service: ACAService, status: int) -> None:
    service.overrides.append(lambda seen: error(status, "Odd", ""))
    with pytest.raises(ExecError, match="may have run"):
        aca().run("user-1", "1")
    assert len(service.seen) == 1


def test_waiting_for_room_ends_with_the_time_for_it(aca: Any, service: ACAService) -> None:
    service.overrides.append(lambda seen: Answer(429, {}, {"Retry-After": "3600"}))
    began = time.monotonic()
    with pytest.raises(LimitReached) as caught:
        aca(max_wait_seconds=1).run("user-1", "1")
    assert caught.value.retry_after_seconds == 3600
    assert len(service.seen) == 1
    service.overrides[:] = [lambda seen: Answer(429, {})]
    with pytest.raises(LimitReached):
        aca(max_wait_seconds=1).run("user-1", "1")
    assert len(service.seen) > 2
    assert time.monotonic() - began < 20


def test_nobody_there_is_told_as_nothing_sent(aca: Any) -> None:
    with pytest.raises(ConnectionFailed, match="nothing was sent"):
        aca(f"http://127.0.0.1:{free_port()}/pool", max_wait_seconds=0.5).run("user-1", "1")


def test_a_service_that_comes_up_late_is_reached(aca: Any) -> None:
    """Nothing was sent while nobody listened, so even a run is tried again."""
    port = free_port()
    services: list[ACAService] = []

    class Late:
        asked = 0

        def get_token(self, *scopes: str, **options: Any) -> Any:
            self.asked += 1
            if self.asked == 3:  # it has found nobody twice
                services.append(ACAService(port=port))
                services[0].tokens["t"] = 9e9
            return AccessToken("t", 0)

    assert aca(f"http://127.0.0.1:{port}{POOL}", Late()).run("user-1", "late").ok
    with services[0] as service:
        assert service.markers == {"late": 1}
