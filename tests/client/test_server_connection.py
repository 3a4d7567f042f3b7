from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient, JupyterConnectable, JupyterConnectionInfo
from jupyter_exec_ext.client.server_connection import connection_to


@pytest.mark.parametrize(
    ("url", "host", "https", "port", "token", "base_url"),
    [
        ("http://localhost:8888/?token=abc", "localhost", False, 8888, "abc", "/"),
        ("http://localhost:8888/lab?token=abc", "localhost", False, 8888, "abc", "/"),
        ("http://localhost:8888/lab/tree/a/b.ipynb", "localhost", False, 8888, None, "/"),
        ("https://hub.example/user/ada/lab", "hub.example", True, None, None, "/user/ada/"),
        ("https://hub.example/user/lab/lab", "hub.example", True, None, None, "/user/lab/"),
        ("https://hub.example/user/ada/named/tree", "hub.example", True, None, None, "/user/ada/named/"),
        ("https://h/user/a%40b/lab", "h", True, None, None, "/user/a@b/"),
        ("http://[::1]:9/x/api/kernels", "::1", False, 9, None, "/x/"),
        ("http://h/exec/v1/", "h", False, None, None, "/"),
        ("localhost:8888", "localhost", False, 8888, None, "/"),
    ],
)
def test_a_url_is_read_as_a_browser_shows_it(
    url: str, host: str, https: bool, port: int | None, token: str | None, base_url: str
) -> None:
    info = JupyterConnectionInfo.from_url(url)
    assert (info.host, info.use_https, info.port, info.token, info.base_url) == (host, https, port, token, base_url)


@pytest.mark.parametrize("url", ["ftp://h/", "http://", "http://user:secret@h/", "file:///etc/passwd"])
def test_invalid_url_is_rejected_without_showing_secrets(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL") as caught:
        JupyterConnectionInfo.from_url(url)
    assert "secret" not in str(caught.value)


# Each has the parts s3cr and hidd of a secret in another place.
SECRETIVE_URLS = (
    "ftp://h:8888/?token=s3crhidd",
    "ftp://h:8888/lab#token=s3crhidd",
    "ftp://h:8888/s3cr?token=hidd",
    "http://?token=s3crhidd",
    "http://#s3crhidd",
    "http:///s3cr/hidd",
    "h:8888/?token=s3crhidd&next=http://x/",
    "s3cr:hidd@h/?next=http://x/",
    "http://ada:s3crhidd@host:8888/",
    "http://ada:s3cr/hidd@host:8888/",
    "http://ada:s3cr#hidd@host/",
    "http://ada:s3cr?hidd@host/",
    "http://ada:s3cr@hidd@host/",
    "ftp://s3cr/hidd@host/",
    "ada:s3cr/hidd@host",
    "http://ada:s3crhidd/",
    "http://h:99999/?token=s3crhidd",
    "http://h:99999/#token=s3crhidd",
    "http://h:99999#token=s3crhidd",
    "http://h:99999;token=s3crhidd",
    "http://h:99999&token=s3crhidd",
    "http://h:99999\\?token=s3crhidd",
    "http://h:99999/s3cr/lab?token=hidd",
    "h:99999/?token=s3crhidd",
    "https://[::1]:99999/?token=s3crhidd",
    "http://[::1/?token=s3crhidd",
    "http://[s3crhidd]/",
    "http://ada:s3crhidd\u2100@host/",
    "http://host\u2100/?token=s3crhidd",
)


@pytest.mark.parametrize("url", SECRETIVE_URLS)
@pytest.mark.parametrize("read", [JupyterConnectionInfo.from_url, lambda url: JupyterConnectionInfo(url, False)])
def test_refused_url_shows_no_part_of_its_secrets(url: str, read: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        read(url)
    shown = "".join(traceback.format_exception(caught.value)[-1:])
    assert "s3cr" not in shown and "hidd" not in shown
    assert caught.value.__cause__ is None and (caught.value.__suppress_context__ or caught.value.__context__ is None)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://h:8888/lab?token=a", "'ftp://h:8888' is not"),
        ("http://h:99999/lab", "in 'http://h:99999' is not"),
        ("https://[::1]:99999/", "in 'https://[::1]:99999' is not"),
        ("http://ada:pa/ss@h/", "in this text is not"),
    ],
)
def test_refused_url_is_named_by_scheme_host_and_port(url: str, shown: str) -> None:
    with pytest.raises(ValueError, match=re.escape(shown)):
        JupyterConnectionInfo.from_url(url)


def test_token_argument_overrides_token_in_url() -> None:
    assert JupyterConnectionInfo.from_url("http://h/?token=a", "b").token == "b"


@pytest.mark.parametrize(
    ("info", "url", "ws_url"),
    [
        (JupyterConnectionInfo("h", False), "http://h/", "ws://h/"),
        (JupyterConnectionInfo("h", True, 7893), "https://h:7893/", "wss://h:7893/"),
        (JupyterConnectionInfo("::1", True, 1, base_url="a/b"), "https://[::1]:1/a/b/", "wss://[::1]:1/a/b/"),
        (
            JupyterConnectionInfo("h", False, base_url="/user/ü ?/"),
            "http://h/user/%C3%BC%20%3F/",
            "ws://h/user/%C3%BC%20%3F/",
        ),
    ],
)
def test_addresses_are_built_with_scheme_port_and_path(info: JupyterConnectionInfo, url: str, ws_url: str) -> None:
    assert (info.url, info.ws_url) == (url, ws_url)


def test_autogens_positional_arguments_work() -> None:
    info = JupyterConnectionInfo("example.com", True, 7893, "mytoken")
    assert (info.host, info.use_https, info.port, info.token) == ("example.com", True, 7893, "mytoken")
    assert info == JupyterConnectionInfo(host="example.com", use_https=True, port=7893, token="mytoken")


def test_the_token_is_in_the_header_and_nowhere_else() -> None:
    info = JupyterConnectionInfo("h", True, token="s3cret")
    assert info.auth_headers == {"Authorization": "token s3cret"}
    for text in (repr(info), str(info), info.url, info.ws_url, repr(ExecClient(info)), repr(AsyncExecClient(info))):
        assert "s3cret" not in text


@pytest.mark.parametrize("token", ["s3c\nret", "s3cret\u20ac", "s3cr\u00e9t", "s3cret\x00"])
def test_token_with_control_characters_is_rejected_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="token") as caught:
        JupyterConnectionInfo("h", False, token=token)
    assert "s3c" not in str(caught.value)


def test_url_as_host_is_rejected_with_remedy() -> None:
    with pytest.raises(ValueError, match="from_url"):
        JupyterConnectionInfo("https://h", False)


class Connectable:
    connection_info = JupyterConnectionInfo("h", False, 1)


class AutoGensInfo:
    """AutoGen's own record, which is not ours."""

    host, use_https, port, token = "g", True, 2, "t"


def test_connection_to_accepts_all_kinds_of_server() -> None:
    assert isinstance(Connectable(), JupyterConnectable)
    assert connection_to(Connectable()) is Connectable.connection_info
    assert connection_to("http://h:3/").port == 3
    assert connection_to(JupyterConnectionInfo("h", False), "t").token == "t"
    foreign: Any = AutoGensInfo()
    assert connection_to(foreign) == JupyterConnectionInfo("g", True, 2, "t")
    nothing: Any = 5
    with pytest.raises(TypeError, match="connection info"):
        connection_to(nothing)


def test_running_servers_are_discovered_newest_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        for number, (url, token) in enumerate(
            [(f"http://127.0.0.1:{port}/old/", "a"), (f"http://127.0.0.1:{port}/", "")]
        ):
            file = tmp_path / f"jpserver-{number}.json"
            file.write_text(json.dumps({"url": url, "token": token}))
            os.utime(file, (number, number))
        (tmp_path / "jpserver-8.json").write_text("{")
        (tmp_path / "jpserver-9.json").write_text('{"url": "http://127.0.0.1:1/", "token": "gone"}')
        found = JupyterConnectionInfo.discover(tmp_path)
    assert [(info.base_url, info.token) for info in found] == [("/", None), ("/old/", "a")]
    assert JupyterConnectionInfo.discover(tmp_path / "missing") == []


def test_server_file_of_ended_process_is_not_discovered(tmp_path: Path) -> None:
    """Another program may have taken the port of a server that was killed, and would get its token."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        for name, pid in {"ended": ended.pid, "own": os.getpid(), "first": 1, "none": None, "odd": "x", "0": 0}.items():
            (tmp_path / f"jpserver-{name}.json").write_text(json.dumps({"url": url + name, "token": "t", "pid": pid}))
        found = JupyterConnectionInfo.discover(tmp_path)
    assert {info.base_url for info in found} == {"/own/", "/first/", "/none/", "/odd/", "/0/"}
