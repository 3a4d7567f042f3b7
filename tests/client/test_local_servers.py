"""Choice of a server that no URL names."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from jupyter_exec_ext.client.local_servers import find_connection
from jupyter_exec_ext.errors import ConnectionFailed

API = (200, {"name": "jupyter_exec_ext"})


@contextmanager
def server(status: int, body: Any) -> Iterator[tuple[str, list[str | None]]]:
    """Yield the URL of a server with one answer, and the tokens that it was sent."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/", tokens
        running.shutdown()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    for name in ("JUPYTER_EXEC_SERVER", "JUPYTER_TOKEN", "JUPYTERHUB_SERVICE_PREFIX", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def executions_server(hosts: Any) -> Any:
    return hosts["gateway"]


def note(runtime: Path, url: str, token: str, age: int, mode: int = 0o600) -> Path:
    file = runtime / f"jpserver-{age}.json"
    file.write_text(json.dumps({"url": url, "token": token}))
    file.chmod(mode)
    os.utime(file, (10**9 - age, 10**9 - age))
    return file


def test_newest_server_that_answers_exec_v1_is_chosen(runtime: Path) -> None:
    with server(404, {"message": "no"}) as (plain, _), server(*API) as (newer, _), server(*API) as (older, _):
        note(runtime, plain, "plain", 1)
        note(runtime, newer, "secret", 2)
        note(runtime, older, "other", 3)
        for client in (ExecClient, AsyncExecClient):
            info = client().connection_info
            assert (info.url, info.token) == (newer, "secret")
        assert find_connection("auto", "given").token == "given"


def test_server_that_refuses_the_token_still_answers_exec_v1(runtime: Path) -> None:
    with server(401, {"code": "unauthenticated", "message": "…"}) as (url, _):
        note(runtime, url, "", 1)
        assert find_connection().url == url


def test_newest_server_is_chosen_although_its_policies_have_a_mistake(runtime: Path) -> None:
    with server(503, {"code": "policies_invalid", "message": "…"}) as (newer, _), server(*API) as (older, _):
        note(runtime, newer, "secret", 1)
        note(runtime, older, "other", 2)
        assert find_connection().url == newer


def test_proxy_that_answers_503_is_passed_over(runtime: Path) -> None:
    with server(503, {"code": "unavailable", "message": "…"}) as (proxy, _), server(*API) as (older, _):
        note(runtime, proxy, "secret", 1)
        note(runtime, older, "other", 2)
        assert find_connection().url == older


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_can_write_is_sent_no_token(runtime: Path, mode: int) -> None:
    with server(*API) as (url, tokens):
        note(runtime, url, "secret", 1, mode)
        with pytest.raises(ConnectionFailed, match="jupyter exec serve"):
            find_connection()
        assert tokens == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_of_another_user_is_sent_no_token(runtime: Path) -> None:
    with server(*API) as (url, tokens):
        os.chown(note(runtime, url, "secret", 1), 65534, 65534)
        with pytest.raises(ConnectionFailed, match="no Jupyter server of yours runs"):
            find_connection()
        assert tokens == []


def test_environment_comes_before_running_servers(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(*API) as (url, _):
        note(runtime, url, "secret", 1)
        monkeypatch.setenv("JUPYTER_EXEC_SERVER", "https://lab.example.org/user/ada/")
        monkeypatch.setenv("JUPYTER_TOKEN", " from-the-environment\n")
        info = find_connection()
        assert (info.url, info.token) == ("https://lab.example.org/user/ada/", "from-the-environment")


def test_without_any_server_the_error_says_how_to_start_one(runtime: Path) -> None:
    with pytest.raises(ConnectionFailed, match=r"no Jupyter server of yours runs.*jupyter exec serve"):
        ExecClient()
    with server(404, {}) as (url, _):
        note(runtime, url, "secret", 1)
        with pytest.raises(ConnectionFailed, match=f"{url}.*has jupyter_exec_ext; install it"):
            ExecClient()


def test_tokens_are_stripped(runtime: Path) -> None:
    assert ExecClient("http://h:1/", " secret\n").connection_info.token == "secret"


# --- sessions that are entered, awaited, or forgotten ---


def test_session_is_awaited_or_entered(executions_server: Any) -> None:
    async def use() -> list[str]:
        async with AsyncExecClient(executions_server.info) as client:
            awaited = await client.session()
            async with client.session() as entered, awaited:
                return [(await one.run("'here'")).text for one in (awaited, entered)]

    assert asyncio.run(use()) == ["'here'"] * 2


def test_unclosed_session_emits_resource_warning(executions_server: Any) -> None:
    with ExecClient(executions_server.info) as client:
        session = client.session()
        session_id = session.id
        kept = [session]
        del session
        with pytest.warns(ResourceWarning, match=f"{session_id}.*was not closed"):
            kept.clear()  # CPython deletes it at once
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = client.get_session(session_id)  # somebody else's to close
            del found
            with client.session():
                pass
            client.session().detach()
            gc.collect()
            client.get_session(session_id).close()
