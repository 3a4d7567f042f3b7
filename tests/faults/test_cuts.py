"""Connections that are cut anywhere: a client that says nothing was sent is right, and a key runs its code once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient
from jupyter_exec_ext.client import AsyncExecSession, ExecSession
from jupyter_exec_ext.errors import ConnectionFailed, ConnectionLost
from jupyter_exec_ext.models import Session
from tests.support.blocking_client import Blocking, LoopThread
from tests.support.full import scaled
from tests.support.hosts import Host
from tests.support.tcp_proxies import RandomCutProxy

CUTS = scaled(1_000, per_commit=50)
COUNT_CODE = "n = globals().get('n', 0) + 1\nprint(n)"


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def client_of(kind: str, proxy: RandomCutProxy, loop: LoopThread, **options: Any) -> Any:
    if kind == "sync":
        return ExecClient(proxy.info, **options)
    return Blocking(AsyncExecClient(proxy.info, **options), loop)


def session_over(client: Any, record: Session, loop: LoopThread) -> Any:
    """Return a session that exists as another client has it, without a request."""
    if isinstance(client, ExecClient):
        return ExecSession(client._driver, client._api, record)
    target = client._target
    return Blocking(AsyncExecSession(target._driver, target._api, record), loop)


@pytest.mark.timeout(60 + CUTS)
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_what_was_sent_is_never_said_not_to_have_been(
    hosts: Any, loop: LoopThread, kind: str, max_retries: int
) -> None:
    host: Host = hosts["server"]
    rng = random.Random(f"{kind} {max_retries}")
    seen: Counter[str] = Counter()
    expected = 0
    with ExecClient(host.info) as direct, direct.session() as session, RandomCutProxy(host.info, rng) as proxy:
        for number in range(CUTS // 4):
            key = f"key-{number}"
            client = client_of(kind, proxy, loop, max_retries=max_retries, outage_seconds=0.0)
            try:
                ran = session_over(client, session.record, loop).run(COUNT_CODE, idempotency_key=key)
                seen["ok"] += 1
                expected += 1
                assert ran.stdout == f"{expected}\n"
            except ConnectionFailed:  # then it has not run
                seen["nothing was sent"] += 1
            except ConnectionLost as error:
                lost_key = error.idempotency_key
                seen["unknown"] += 1
                expected += 1
                assert session.run(COUNT_CODE, idempotency_key=lost_key).stdout == f"{expected}\n"
            finally:
                client.close()
        assert session.run("print(globals().get('n', 0))").stdout == f"{expected}\n"
    assert seen["unknown"] > 0
    print(f"\ncuts, {kind}, {max_retries} retries: {dict(seen)}")
