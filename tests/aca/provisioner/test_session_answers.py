"""What a session prints can be anything: user code can print, too."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import threading
import zlib
from collections.abc import Coroutine
from typing import Any

import pytest

from jupyter_exec_ext.aca.protocol.run_format import RunResult, RunStatus
from jupyter_exec_ext.aca.provisioner.aca_session import ACASession, RunFailedError, SessionExpiredError
from jupyter_exec_ext.aca.provisioner.session_answers import failed_answer, find_piece, is_lost, read_answer
from jupyter_exec_ext.errors import ConnectionLost, SessionNotFound, UnexpectedAnswer


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def test_answer_is_found_between_other_printed_text() -> None:
    piece = find_piece("m", "1", "before<m 1 0 4:abcd:m>after")
    assert piece is not None
    assert (piece.start, piece.total, piece.text, piece.around) == (0, 4, "abcd", "beforeafter")


@pytest.mark.parametrize("text", ["", "<m 1 0 4:ab", "<m 2 0 4:abcd:m>", "<n 1 0 4:abcd:n>", "<m 1 0 4:a!cd:m>"])
def test_fragment_or_foreign_answer_is_not_found(text: str) -> None:
    assert find_piece("m", "1", text) is None


def test_answer_keeps_only_messages_that_are_outputs() -> None:
    messages = [["stream", {"name": "stdout", "text": "x"}], ["shutdown_reply", {}], ["stream", "x"], "stream", [1, {}]]
    answer = read_answer(packed({"reply": {"status": "ok"}, "messages": messages, "dropped_characters": "many"}))
    assert answer.messages == [("stream", {"name": "stdout", "text": "x"})]
    assert answer.dropped_characters == 0


@pytest.mark.parametrize("text", ["", "!", "AAAA", packed([]), packed({"reply": 1}), packed("x") + "A"])
def test_unreadable_answer_raises_unexpected_answer(text: str) -> None:
    with pytest.raises(UnexpectedAnswer):
        read_answer(text)


def test_answer_over_the_limit_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.session_answers._MAX_ANSWER_BYTES", 1000)
    with pytest.raises(UnexpectedAnswer, match="more than 1000 bytes"):
        read_answer(packed({"reply": {}, "x": "a" * 2000}))


def test_lost_session_is_recognised_by_the_missing_module() -> None:
    assert is_lost("_jupyter_exec_ab", "Traceback\nKeyError: '_jupyter_exec_ab'")
    assert not is_lost("_jupyter_exec_ab", "KeyError: 'x'")


def test_failed_run_shows_the_message_of_the_service() -> None:
    answer = failed_answer("RunFailed", "first\nExecution aborted")
    assert answer.reply["evalue"] == "Execution aborted"
    assert answer.messages == [("error", answer.messages[0][1])]
    assert answer.messages[0][1]["traceback"] == ["first", "Execution aborted"]


class Service:
    """A service whose sessions have no IPython, with answers that are given."""

    def __init__(self, *answers: RunResult) -> None:
        self.answers = list(answers)
        self.codes: list[str] = []
        self.deleted: list[str] = []

    async def run(self, identifier: str, code: str, **_: Any) -> RunResult:
        self.codes.append(code)
        return self.answers.pop(0)

    async def delete_session(self, identifier: str) -> None:
        self.deleted.append(identifier)


def session_of(service: Any) -> ACASession:
    def leave(coroutine: Coroutine[Any, Any, None]) -> None:
        with pytest.raises(StopIteration):  # it waits for nothing here
            coroutine.send(None)

    return ACASession(service, timeout_seconds=10, environment={}, delete_in_background=leave)


_NO_IPYTHON = RunResult(RunStatus.FAILED, stderr="ModuleNotFoundError: No module named 'IPython'")


async def run(service: Service, code: str = "6 * 7") -> Any:
    session = session_of(service)
    return await session.execute(1, code, silent=False, store_history=True, expressions={})


async def test_without_ipython_the_services_own_words_are_shown() -> None:
    service = Service(_NO_IPYTHON, RunResult(RunStatus.SUCCEEDED, stdout="out\n", stderr="err\n", value=42))
    answer = await run(service)
    assert service.codes[1] == "6 * 7"
    assert [kind for kind, _ in answer.messages] == ["stream", "stream", "execute_result"]
    assert answer.messages[2][1]["data"] == {"text/plain": "42"}


async def test_without_ipython_a_failure_is_one() -> None:
    answer = await run(Service(_NO_IPYTHON, RunResult(RunStatus.FAILED, stderr="x\nNameError: y")))
    assert (answer.reply["status"], answer.reply["evalue"]) == ("error", "NameError: y")


def begun_service(*answers: RunResult) -> tuple[Service, ACASession]:
    service = Service(*answers)
    session = session_of(service)
    session.identifier, session._mark = "known", "_jupyter_exec_ab"
    return service, session


async def test_code_is_sent_once_even_if_its_answer_is_cut_off_or_the_run_fails() -> None:
    for last, error in (
        (RunResult(RunStatus.FAILED, stderr="Execution aborted"), RunFailedError),
        (RunResult(RunStatus.FAILED, stderr="KeyError: '_jupyter_exec_ab'"), SessionExpiredError),
    ):
        service, session = begun_service(RunResult(RunStatus.SUCCEEDED, stdout="<_jupyter_exec_ab 1"), last)
        with pytest.raises(error):
            await session.execute(1, "once()", silent=False, store_history=True, expressions={})
        assert sum("once()" in code for code in service.codes) == 1
        assert len(service.codes) == 2


async def test_a_service_that_hands_over_almost_nothing_is_told_from_one_that_hangs() -> None:
    service, session = begun_service(*[RunResult(RunStatus.SUCCEEDED, stdout="<_")] * 20)
    with pytest.raises(UnexpectedAnswer, match="too little"):
        await session.execute(1, "once()", silent=False, store_history=True, expressions={})
    assert len(service.codes) < 10


class Pool(Service):
    """Begins a session with the first request that reaches it, which may be later than the next one."""

    def __init__(self, ends: bool = False) -> None:
        super().__init__()
        self.ends = ends  # by itself: code that asks for what a fresh session does not have
        self.sessions: dict[str, asyncio.Event] = {}
        self.sent, self.arrives, self.began = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self, identifier: str, code: str, **_: Any) -> RunResult:
        self.sent.set()
        await self.arrives.wait()
        ended = self.sessions[identifier] = asyncio.Event()
        self.began.set()
        if self.ends:
            return RunResult(RunStatus.FAILED, stderr="KeyError: '_jupyter_exec_ab'")
        await ended.wait()
        raise SessionNotFound("it was deleted")

    async def delete_session(self, identifier: str) -> None:
        await super().delete_session(identifier)
        self.arrives.set()
        if identifier not in self.sessions:
            raise SessionNotFound("there is none")
        self.sessions.pop(identifier).set()


@pytest.mark.parametrize(("overtaken", "ends"), [(False, False), (True, False), (True, True)])
async def test_what_runs_ends_with_its_session_even_if_it_got_there_later(
    monkeypatch: pytest.MonkeyPatch, overtaken: bool, ends: bool
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.aca_session._OVERTAKEN_SECONDS", 0.5)
    pool = Pool(ends)
    session = session_of(pool)
    session.identifier = "known"
    running = asyncio.create_task(session.execute(1, "", silent=False, store_history=True, expressions={}))
    await pool.sent.wait()
    if not overtaken:
        pool.arrives.set()
        await pool.began.wait()
    running.cancel()
    await session.delete()
    assert pool.sessions == {}
    assert pool.deleted == ["known"] * 2
    assert not session.is_started


class Forger(Service):
    """A session whose code prints answers of its own making."""

    def __init__(self, total: int, text: str = "A", around: str = "") -> None:
        super().__init__()
        self.total, self.text, self.around = total, text, around

    async def run(self, identifier: str, code: str, **_: Any) -> RunResult:
        self.codes.append(code)
        assert len(self.codes) < 10, "it is asked for ever"
        request = json.loads(re.findall(r"'({.*})'", code)[-1])
        piece = f"{request['id']} {request['start']} {self.total}:{self.text}"
        return RunResult(RunStatus.SUCCEEDED, stdout=f"<_jupyter_exec_ab {piece}:_jupyter_exec_ab>{self.around}")


async def asked(service: Service) -> Any:
    session = session_of(service)
    session.identifier, session._mark = "known", "_jupyter_exec_ab"
    return await session.execute(1, "forge()", silent=False, store_history=True, expressions={})


@pytest.mark.parametrize(
    ("service", "runs"),
    [(Forger(10**12 - 1, "A" * 2000), 1), (Forger(10_000), 2), (Forger(10_000, "A" * 600, "x" * 2000), 3)],
)
async def test_a_forged_answer_is_not_asked_for_without_end(
    service: Forger, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if service.around:
        monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.aca_session.MAX_PACKED_CHARACTERS", 7000)
        service.total = 6000
    with pytest.raises(UnexpectedAnswer):
        await asked(service)
    assert len(service.codes) == runs


async def test_what_may_be_large_is_unpacked_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def reading(text: str) -> Any:
        threads.append(threading.get_ident())
        return read_answer(text)

    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.aca_session.read_answer", reading)
    noise = random.Random(1).randbytes(2000).hex()
    for data in ("", noise + "a" * 4_000_000):
        text = packed({"reply": {"status": "ok"}, "x": data})
        assert len(text) < 16 * 1024
        await asked(Forger(len(text), text))
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


_LOST = RunResult(RunStatus.FAILED, stderr="KeyError: '_jupyter_exec_ab'")


async def test_a_session_that_is_forgotten_is_ended() -> None:
    service, session = begun_service(_LOST)
    with pytest.raises(SessionExpiredError):
        await session.execute(1, "1", silent=False, store_history=True, expressions={})
    assert (service.deleted, session.is_started) == (["known"], False)

    service, session = begun_service(_LOST)
    assert await session.is_lost()
    assert service.deleted == ["known"]


async def test_a_session_that_was_begun_by_halves_is_ended() -> None:
    service = Service()
    session = session_of(service)
    service.run = failing  # type: ignore[method-assign]
    with pytest.raises(ConnectionLost):
        await session.start()
    assert len(service.deleted) == 1
    assert not session.is_started


async def failing(*_: Any, **__: Any) -> RunResult:
    raise ConnectionLost("lost")
