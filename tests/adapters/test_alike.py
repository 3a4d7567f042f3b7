"""Both kinds of sessions that adapters use do the same: what a model is told, what ends, what is begun again."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient, JupyterConnectionInfo, LocalJupyterServer
from jupyter_exec_ext.adapters._code_session import CodeSession
from jupyter_exec_ext.adapters._session_portal import SessionPortal
from jupyter_exec_ext.adapters._tool_text import NotRun
from jupyter_exec_ext.errors import SessionEnded
from jupyter_exec_ext.models import Execution

if TYPE_CHECKING:
    from typing_extensions import Self


class Used:
    """One of them, by the calls that a framework makes."""

    def __init__(self, kind: str, *args: Any, **options: Any) -> None:
        self.session = (CodeSession if kind == "code" else SessionPortal)(*args, **options)
        self._kind = kind

    async def run(self, code: str, language: str | None = None) -> Execution | NotRun:
        if isinstance(self.session, CodeSession):
            return await self.session.run(code, language)
        if self._kind == "tool":
            return self.session.run(code, language)
        return await self.session.run_async(code, language)

    async def close(self) -> None:
        closing = self.session.close()
        if inspect.isawaitable(closing):
            await closing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


KINDS = ["code", "tool", "tool, asynchronously"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def used(kind: str, local_server: LocalJupyterServer) -> AsyncIterator[Used]:
    async with Used(kind, local_server) as used:
        yield used


async def test_refused_code_is_an_answer_for_the_model(kind: str, restricted_server: JupyterConnectionInfo) -> None:
    async with Used(kind, restricted_server) as used:
        await used.run("x = 1")
        for code, language, reason in (
            ("fn main() {}", "rust", "rust"),
            ("#" * 101, None, "allows 100 bytes of code, not 101"),
            ("#" * 10_000_000, None, "at most"),
        ):
            outcome = await used.run(code, language)
            assert isinstance(outcome, NotRun)
            assert not outcome.session_lost
            assert outcome.to_text().startswith("Not run: ")
            assert reason in outcome.to_text()
        assert (await used.run("x")).to_text() == "1"


async def test_an_ended_session_is_replaced_and_the_model_is_told(used: Used, client: ExecClient) -> None:
    await used.run("x = 1")
    (record,) = client.list_sessions()
    client.get_session(record.id).close()
    outcome = await used.run("x")
    assert isinstance(outcome, NotRun)
    assert outcome.session_lost
    assert "variables, imports and definitions are gone" in outcome.to_text()
    assert (await used.run("'x' in globals()")).to_text() == "False"


async def test_session_reopens_after_close(used: Used, client: ExecClient) -> None:
    for _ in range(2):
        assert (await used.run("'x' in globals()")).to_text() == "False"
        await used.run("x = 1")
        await used.close()
        await used.close()
        assert client.list_sessions() == []


async def test_session_has_the_default_limits(used: Used, client: ExecClient) -> None:
    await used.run("1")
    (record,) = client.list_sessions()
    assert record.idle_timeout_seconds == 24 * 3600
    (execution,) = client.get_session(record.id).list_executions()
    assert execution.timeout_seconds == 60


@pytest.mark.parametrize("how", ["session_id", "session", "other session"])
async def test_a_session_that_exists_is_neither_replaced_nor_ended(
    kind: str, how: str, local_server: LocalJupyterServer, client: ExecClient
) -> None:
    async with AsyncExecClient(local_server) as theirs:
        given = await theirs.session()
        places: dict[str, dict[str, Any]] = {
            "session_id": {"server": local_server, "session_id": given.id},
            "session": {"session": given},
            "other session": {"session": client.get_session(given.id)},
        }
        there = places[how]
        await given.run("x = 1")
        async with Used(kind, **there) as used:
            assert given.id in repr(used.session)
            assert (await used.run("x")).to_text() == "1"
        assert (await used.run("x")).to_text() == "1"
        await used.close()
        assert (await given.run("x")).ok
        async with Used(kind, **there) as used:
            await used.run("x")
            await given.close()
            sessions = client.list_sessions()
            for _ in range(2):
                with pytest.raises(SessionEnded):
                    await used.run("x")
        assert client.list_sessions() == sessions


def test_contradicting_arguments_raise_value_error(
    kind: str, local_server: LocalJupyterServer, client: ExecClient
) -> None:
    with client.session() as given:
        for options, message in (
            ({}, "give a server"),
            ({"server": local_server, "session": given}, "give a server"),
            ({"session": given, "token": "x"}, "has its token, kernel and id"),
            ({"session": given, "kernel_name": "x"}, "has its token, kernel and id"),
            ({"session": given, "session_id": "x"}, "has its token, kernel and id"),
            ({"server": local_server, "session_id": "x", "kernel_name": "x"}, "has its kernel"),
        ):
            with pytest.raises(ValueError, match=message):
                Used(kind, **options)
