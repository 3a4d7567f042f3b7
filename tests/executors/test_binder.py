"""`BinderServer` at a stand-in BinderHub, whose ready server is a real one."""

from __future__ import annotations

import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from jupyter_exec_ext import (
    AsyncExecClient,
    BinderServer,
    CodeBlock,
    ExecClient,
    JupyterCodeExecutor,
    JupyterConnectable,
    JupyterConnectionInfo,
)
from jupyter_exec_ext.errors import (
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    LimitReached,
    ServerStartFailed,
    ServerStartTimeout,
    UnexpectedAnswer,
)
from jupyter_exec_ext.executors import LaunchProgress
from jupyter_exec_ext.executors.binder import build_path
from jupyter_exec_ext.executors.remote_launch import server_at
from tests.support.binderhubs import BUILD, KEEP_ALIVE, Answer, Events, StandInBinderHub, log, ready
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, running_host

SPEC = "gh/org/repo/HEAD"


@pytest.fixture
def server(hosts: Any) -> Host:
    started: Host = hosts["server-base-url"]
    return started


def launched(binder: StandInBinderHub, **options: Any) -> BinderServer:
    """Launch and leave the server running: it is shared."""
    return BinderServer(SPEC, binder_url=binder.url, **{"stop": False, "on_progress": None, **options})


async def test_a_launched_server_is_used_by_executors_and_both_clients(server: Host, tmp_path: Path) -> None:
    told: list[LaunchProgress] = []
    with StandInBinderHub(Events([*BUILD, ready(server.info)])) as binder:
        with launched(binder, on_progress=told.append) as binders:
            assert isinstance(binders, JupyterConnectable)
            assert binders.connection_info == server.info
            with JupyterCodeExecutor(binders, output_dir=tmp_path) as executor:
                assert executor.execute_code_blocks([CodeBlock("print(6 * 7)", "python")]).output == "42\n"
            with ExecClient(binders) as client:
                assert client.info()["name"] == "jupyter_exec_ext"
            async with AsyncExecClient(binders) as aclient:
                assert (await aclient.info())["name"] == "jupyter_exec_ext"
        (path, headers), *more = binder.seen
        assert (path, headers["Accept"], more) == (f"/build/{SPEC}", "text/event-stream", [])
        assert "Authorization" not in headers
    phases = ["waiting", "fetching", "building", "pushing", "built", "launching", "ready"]
    assert [p.phase for p in told if p.begins] == phases
    assert [p.percent for p in told if p.phase == "pushing"] == [25.0]
    assert "warning: a log" in [p.message for p in told]
    for text in (repr(told), repr(binders), repr(vars(binders))):
        assert str(server.info.token) not in text
    with pytest.raises(ClientError, match="launch another"):
        binders.connection_info  # noqa: B018


def test_default_progress_prints_phases_only(server: Host, capsys: pytest.CaptureFixture[str]) -> None:
    with StandInBinderHub(Events([*BUILD, ready(server.info)])) as binder:
        BinderServer(SPEC, binder_url=binder.url, stop=False).stop()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "waiting: Waiting for build to start...",
        "fetching: Picked Git content provider.",
        "building: Step 1/3 : FROM base",
        "pushing: Pushing image",
        "built: Built image, launching...",
        "launching: Launching server...",
        "ready",
    ]


def test_leaving_shuts_the_server_down(tmp_path: Path) -> None:
    with (
        running_host("server-base-url", tmp_path) as host,
        StandInBinderHub(Events([ready(host.info)])) as binder,
        BinderServer(SPEC, binder_url=binder.url, on_progress=None) as server,
    ):
        assert ExecClient(server).info()["name"] == "jupyter_exec_ext"
        server.stop()
        host.process.wait(20)
        server.stop()


def test_stop_of_ended_server_is_no_error() -> None:
    gone = JupyterConnectionInfo("127.0.0.1", False, free_port(), "t", "/user/x/")
    with StandInBinderHub(Events([ready(gone)])) as binder:
        BinderServer(SPEC, binder_url=binder.url, on_progress=None).stop()


def test_redirects_are_followed_and_a_token_goes_to_no_other_address(server: Host) -> None:
    with StandInBinderHub(Events([ready(server.info)])) as member:
        moved = Answer(307, {"Location": f"{member.url}/member/build/{SPEC}?x=1", "Set-Cookie": "host=m; Path=/"})
        with StandInBinderHub(Answer(302, {"Location": f"/here/build/{SPEC}"}), moved) as front:
            launched(front, binder_token="s3cret").stop()
    assert [path for path, _ in front.seen] == [f"/build/{SPEC}", f"/here/build/{SPEC}"]
    assert [headers.get("Authorization") for _, headers in front.seen] == ["token s3cret"] * 2
    assert [path for path, _ in member.seen] == [f"/member/build/{SPEC}?x=1"]
    assert "Authorization" not in member.seen[0][1]


def test_redirects_in_a_circle_end() -> None:
    with StandInBinderHub(*[Answer(307, {"Location": f"/build/{SPEC}"})] * 10) as binder:
        with pytest.raises(UnexpectedAnswer, match="redirected more than"):
            launched(binder)
        assert len(binder.seen) == 6


def test_a_build_that_fails_says_why_with_the_last_lines_of_its_log() -> None:
    lines = [f"line {number} \x1b[2J" for number in range(40)]
    failed = {"phase": "failed", "message": "Error during build: exit 1\n"}
    words = r"gh/org/repo/HEAD: Error during build: exit 1"
    with (
        StandInBinderHub(Events([*log("building", *lines), failed])) as binder,
        pytest.raises(ServerStartFailed, match=words) as caught,
    ):
        launched(binder)
    told = caught.value.message.splitlines()
    assert told[-2:] == ["line 39", "Error during build: exit 1"]
    assert len(told) == 16
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    "event", [{"phase": "failure", "message": "no"}, {"phase": "Failed"}, {"phase": "failed", "message": 5}]
)
def test_every_failure_phase_raises_server_start_failed(event: dict[str, Any]) -> None:
    with StandInBinderHub(Events([event])) as binder, pytest.raises(ServerStartFailed, match=SPEC):
        launched(binder)


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (
            Events(
                [
                    {
                        "phase": "failed",
                        "status_code": 429,
                        "message": "Rate limit exceeded. Try again in 3600 seconds.\n",
                    }
                ]
            ),
            3600.0,
        ),
        (Events([{"phase": "failed", "status_code": 429, "message": "Too many launches\n"}]), None),
        (Answer(429, {"Retry-After": "60"}), 60.0),
    ],
)
def test_launch_limit_has_retry_after(answer: Any, wait: float | None) -> None:
    with StandInBinderHub(answer) as binder:
        with pytest.raises(LimitReached, match=r"3600 s|later|60 s") as caught:
            launched(binder)
        assert len(binder.seen) == 1
    assert caught.value.retry_after_seconds == wait


@pytest.mark.parametrize("then", ["cut", "end"])
@pytest.mark.parametrize("before", [BUILD[:1], BUILD[:4], BUILD[:8]])
def test_stream_cut_during_build_is_reopened(server: Host, before: Any, then: str) -> None:
    """Asking again joins the build that is under way."""
    with StandInBinderHub(Events(before, then), Answer(502), Events([*BUILD, ready(server.info)])) as binder:
        assert launched(binder).connection_info == server.info
        assert len(binder.seen) == 3


@pytest.mark.parametrize("before", [[], BUILD[:9], BUILD])
def test_stream_cut_after_build_is_not_reopened(server: Host, before: Any) -> None:
    """Asking again would launch another one."""
    with StandInBinderHub(Events(before, "cut"), Events([ready(server.info)])) as binder:
        with pytest.raises(ConnectionLost, match="launching again starts another"):
            launched(binder)
        assert len(binder.seen) == 1


def test_reopening_of_stream_ends() -> None:
    with StandInBinderHub(*[Events(BUILD[:4], "cut")] * 20) as binder:
        with pytest.raises(ConnectionLost):
            launched(binder)
        assert len(binder.seen) == 5


def test_missing_server_raises_connection_failed() -> None:
    with pytest.raises(ConnectionFailed, match="BinderHub cannot be reached"):
        BinderServer(SPEC, binder_url=f"http://127.0.0.1:{free_port()}", on_progress=None)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """A server's certificate, and what to check it with."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    return context, str(bundle)


@pytest.mark.parametrize("secure", [False, True])
@only_in_full
def test_launch_deadline_holds_despite_heartbeats(secure: bool, tls: tuple[ssl.SSLContext, str]) -> None:
    threads = threading.active_count()
    context, bundle = tls
    events = Events(log("building", "Step 1/3"), keep_alive_seconds=2.9)
    with StandInBinderHub(events, tls=context if secure else None) as binder:
        begun = time.monotonic()
        with pytest.raises(ServerStartTimeout, match=r"within 3 s \(the last that was heard: Step 1/3\)"):
            launched(binder, startup_timeout_seconds=3, verify=bundle if secure else True)
        assert 3 <= time.monotonic() - begun < 5.5  # neither with the next sign of life nor 3 s after the last one
        assert len(binder.seen) == 1
    assert threading.active_count() <= threads


def test_nothing_leads_from_https_to_http(server: Host, tls: tuple[ssl.SSLContext, str]) -> None:
    context, bundle = tls
    elsewhere = Answer(307, {"Location": f"http://127.0.0.1:1/build/{SPEC}"})
    for answer in (Events([ready(server.info)]), elsewhere):
        with StandInBinderHub(answer, tls=context) as binder, pytest.raises(UnexpectedAnswer, match="HTTPS") as caught:
            launched(binder, verify=bundle)
        assert str(server.info.token) not in str(caught.value)


@pytest.mark.parametrize(
    "events",
    [
        ["data: no json\n\n"],
        ["data: [1]\n\n"],
        [{"phase": "ready", "message": "built only", "imageName": "x"}],
        [{"phase": "ready", "url": "https://h/", "token": ""}],
        [{"phase": "ready", "url": "https://user:pass@h/", "token": "s3cret"}],
        [{"phase": "ready", "url": "file:///etc/passwd", "token": "s3cret"}],
        [{"phase": "ready", "url": "http://h:port/", "token": "s3cret"}],
        [{"phase": "building", "message": "x" * 2**21}],
    ],
)
def test_malformed_binderhub_events_are_rejected_without_showing_secrets(events: Any) -> None:
    with StandInBinderHub(Events(events)) as binder, pytest.raises(UnexpectedAnswer) as caught:
        launched(binder)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(404), "no BinderHub"),
        (Answer(200, {"Content-Type": "text/html"}), "not a stream of events"),
        (Answer(500), "answered 500"),
        (Answer(403), "refused"),
    ],
)
def test_server_that_is_no_binderhub_is_reported(answer: Answer, words: str) -> None:
    with StandInBinderHub(answer) as binder, pytest.raises(ExecError, match=words):
        launched(binder)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("gh/org/repo/HEAD", "build/gh/org/repo/HEAD"),
        ("gh/org/repo/feature/x", "build/gh/org/repo/feature/x"),
        ("gl/org%2Frepo/main", "build/gl/org%2Frepo/main"),
        ("git/https%3A%2F%2Fgit.example%2Fr/main", "build/git/https%3A%2F%2Fgit.example%2Fr/main"),
        ("zenodo/10.5281/zenodo.1", "build/zenodo/10.5281/zenodo.1"),
        ("gh/org/repo/v1?build_only=true", "build/gh/org/repo/v1%3Fbuild_only=true"),
        ("gh/org/repo/a#b", "build/gh/org/repo/a%23b"),
    ],
)
def test_a_spec_becomes_a_path(spec: str, path: str) -> None:
    assert build_path(spec) == path


@pytest.mark.parametrize("spec", ["", "gh", "gh/", "/gh/org", "gh//repo", "gh/../metrics", "gh/%2e%2E/x", "gh/org/r\n"])
def test_invalid_spec_is_rejected(spec: str) -> None:
    with pytest.raises(ValueError, match="gh/org/repo/HEAD"):
        BinderServer(spec, binder_url="http://127.0.0.1:1")


def test_server_address_keeps_whole_path() -> None:
    place = JupyterConnectionInfo("b", True, verify="ca.pem")
    found = server_at("https://hub.example/user/org-lab-x/lab/?token=no", place, "the BinderHub", "t")
    assert (found.url, found.token, found.verify) == ("https://hub.example/user/org-lab-x/lab/", "t", "ca.pem")
    assert replace(found, base_url="/").url == "https://hub.example/"


def test_a_launch_below_a_base_url(server: Host) -> None:
    with StandInBinderHub(Events([KEEP_ALIVE, ready(server.info)])) as binder:
        BinderServer(SPEC, binder_url=f"{binder.url}/services/binder", stop=False, on_progress=None).stop()
        assert binder.seen[0][0] == f"/services/binder/build/{SPEC}"
