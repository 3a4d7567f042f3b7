"""F27: the time of a refusal is the same for an unknown id and a wrong secret, and short."""

from __future__ import annotations

import logging
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.auth.policy_parsing import read_policies
from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.engine.access import token_service
from jupyter_exec_ext.engine.access.token_service import TokenService
from jupyter_exec_ext.engine.access.token_watch import TokenJournal, TokenWatch
from jupyter_exec_ext.engine.change_feed import ChangeFeed
from jupyter_exec_ext.engine.concurrency import BackgroundTasks
from jupyter_exec_ext.engine.settings import EngineSettings
from jupyter_exec_ext.errors import ExecError, TooManyAttempts, Unauthenticated
from jupyter_exec_ext.models import TokenRequest
from jupyter_exec_ext.store.store import ExecStore
from tests.support.bearers import Bearer, mint
from tests.support.full import IS_FULL, SCALE, only_in_full
from tests.support.hosts import running_host

TRIES = 2000 * SCALE
# With fewer tries the medians themselves are less certain.
TOLERANCE = 0.05 if IS_FULL else 0.15
IDS = 100
# A refusal within the budget, on a quick machine; a shorter one beyond it may differ by as much.
USUAL_SECONDS = 40e-6
# A request costs the event loop about a millisecond. A flood of wrong tokens must not make that a multiple.
MAX_VERIFICATION_SECONDS = 0.001


@pytest.fixture(params=[Unauthenticated, TooManyAttempts], ids=["within the budget", "beyond it"])
def refusal(request: pytest.FixtureRequest) -> type[ExecError]:
    """The refusal of a wrong token, of which each has its budget or none has any."""
    return cast(type[ExecError], request.param)


@pytest.fixture
async def verbs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[ExecError]
) -> AsyncIterator[TokenService]:
    monkeypatch.setattr(token_service, "ATTEMPTS_AT_ONCE", 10 * TRIES if refusal is Unauthenticated else 1)
    monkeypatch.setattr(token_service, "ATTEMPTS_PER_MINUTE", 0.001)

    store = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096, log=logging.getLogger("test"))
    feed, background = ChangeFeed(), BackgroundTasks()
    journal = TokenJournal(store.tokens, store.audit, feed, background)
    yield TokenService(
        store.tokens,
        read_policies({}),
        EngineSettings(),
        store.audit,
        feed,
        journal,
        TokenWatch(store.tokens, journal, logging.getLogger("test")),
    )
    await background.drain()
    store.close()


def medians(ways: Sequence[Callable[[], object]], tries: int) -> list[float]:
    """Return the medians in seconds, of tries that take turns in random order, so that all see the same machine."""
    took: list[list[float]] = [[] for _ in ways]
    order = list(range(len(ways)))
    for _ in range(tries):
        random.shuffle(order)
        for way in order:
            began = time.perf_counter()
            ways[way]()
            took[way].append(time.perf_counter() - began)
    return [statistics.median(each) for each in took]


async def test_f27_an_unknown_id_takes_as_long_as_a_wrong_secret(
    verbs: TokenService, refusal: type[ExecError], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong: list[str] = []
    for size in range(IDS):  # with little and much to be known about them
        request = TokenRequest("x" * (1 + size), scopes=["sessions:read"], limits={"env": ["x" * 200] * size})
        issued = await verbs.create(owner("Ada", {"username": "ada"}), request)
        wrong.append(new_token(issued.token.id).text)
    unknown = [new_token().text for _ in range(IDS)]

    def refuse(texts: Sequence[str]) -> None:
        text = random.choice(texts)
        with pytest.raises(refusal):
            verbs.authenticate(text, "127.0.0.1")

    def bare(texts: Sequence[str]) -> None:
        try:
            verbs.authenticate(random.choice(texts), "127.0.0.1")
        except refusal:
            return
        raise AssertionError("a wrong token was let in")

    if refusal is TooManyAttempts:
        with pytest.raises(Unauthenticated):
            verbs.authenticate(random.choice(wrong), "127.0.0.1")
    refuse(wrong)
    refuse(unknown)
    one, other = medians([lambda: bare(wrong), lambda: bare(unknown)], TRIES)
    with capsys.disabled():
        print(f"\nF27: {TRIES} tries each: wrong secret {one * 1e6:.2f} us, unknown id {other * 1e6:.2f} us: ", end="")
        print(f"{abs(one / other - 1):.1%} apart")
    assert max(one, other) < MAX_VERIFICATION_SECONDS
    assert abs(one - other) <= TOLERANCE * max(other, USUAL_SECONDS)


@only_in_full
def test_f27_nor_does_it_over_http(tmp_path: Path) -> None:
    """Without the budget, which is what really keeps anybody from measuring this over a network."""
    (tmp_path / "sitecustomize.py").write_text(
        "from jupyter_exec_ext.engine.access import token_service\ntoken_service.ATTEMPTS_AT_ONCE = 10**9\n"
    )
    with running_host("server", tmp_path, env={"PYTHONPATH": str(tmp_path)}) as host:
        wrong = [new_token(mint(host, ["sessions:read"]).id).text for _ in range(IDS)]
        unknown = [new_token().text for _ in range(IDS)]

        def refuse(texts: Sequence[str]) -> None:
            answer = Bearer(host, random.choice(texts)).call("GET", "/")
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")

        one, other = medians([lambda: refuse(wrong), lambda: refuse(unknown)], 2000)
        assert abs(one / other - 1) <= 0.05
