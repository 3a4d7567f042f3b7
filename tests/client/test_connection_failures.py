"""What a person reads when there is no connection, or something else answers."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trustme

from jupyter_exec_ext.client import AsyncExecClient, ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.errors import ConnectionFailed, ExecError, Forbidden, Unauthenticated, UnexpectedAnswer
from tests.client.test_transport import Fake
from tests.support.hosts import Host, free_port


def sync_error(info: JupyterConnectionInfo) -> ExecError:
    with ExecClient(info, max_retries=1) as client, pytest.raises(ExecError) as raised:
        client.info()
    return raised.value


def async_error(info: JupyterConnectionInfo) -> ExecError:
    async def ask() -> ExecError:
        async with AsyncExecClient(info, max_retries=1) as client:
            with pytest.raises(ExecError) as raised:
                await client.info()
            return raised.value

    return asyncio.run(ask())


@pytest.fixture(params=[sync_error, async_error], ids=["sync", "async"])
def error_of(request: pytest.FixtureRequest) -> Callable[[JupyterConnectionInfo], ExecError]:
    """What a client of each kind raises."""
    return request.param  # type: ignore[no-any-return]


def test_port_where_nothing_listens_is_named_with_the_remedy(error_of: Any) -> None:
    port = free_port()
    error = error_of(JupyterConnectionInfo("127.0.0.1", False, port))
    assert isinstance(error, ConnectionFailed)
    assert error.message == (
        f"nothing listens at http://127.0.0.1:{port}/; start it with 'jupyter exec serve', or check its host and port"
    )


def test_https_for_an_http_server_is_noticed_within_five_seconds(error_of: Any, hosts: Any) -> None:
    info = replace(hosts["gateway"].info, use_https=True)
    began = time.monotonic()
    error = error_of(info)
    assert time.monotonic() - began < 5
    assert isinstance(error, ConnectionFailed)
    assert error.message == f"that port speaks http, not https; use {hosts['gateway'].info.url}"


def test_machine_without_an_address_is_named(error_of: Any) -> None:
    error = error_of(JupyterConnectionInfo("no-such-machine.invalid", False, 80))
    assert error.message == "there is no machine named 'no-such-machine.invalid'; check the address"


def test_certificate_of_an_unknown_authority_is_explained(error_of: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with Fake(200, b"{}") as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        error = error_of(JupyterConnectionInfo("127.0.0.1", True, server.server_port))
    assert isinstance(error, ConnectionFailed)
    assert "is not trusted" in error.message
    assert "--ca-bundle" in error.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b"<html><title>JupyterHub - Sign In</title></html>",
            "a login page titled 'JupyterHub - Sign In' (status",
        ),
        (b"<html><head><TITLE>\nShop\x1b[2J</TITLE></head></html>", "a page titled 'Shop[2J' (status"),
        (b"<html></html>", "a page (status 200"),
    ],
)
def test_page_in_the_place_of_an_answer_is_named(error_of: Any, body: bytes, words: str) -> None:
    with Fake(200, body, **{"Content-Type": "text/html"}) as server:
        error = error_of(JupyterConnectionInfo("127.0.0.1", False, server.server_port, "t"))
    assert isinstance(error, UnexpectedAnswer)
    assert f"this answer is not from exec/v1: {words}" in error.message


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_missing_and_wrong_token_have_different_messages(error_of: Any, hosts: Any, name: str) -> None:
    host: Host = hosts[name]
    none = error_of(replace(host.info, token=None))
    wrong = error_of(replace(host.info, token="wrong"))
    assert isinstance(none, Unauthenticated)
    assert isinstance(wrong, (Unauthenticated, Forbidden))
    assert none.message.startswith("no token was given")
    assert wrong.message.startswith("the server refused this token")
