"""Decisions on the liveness of kernels elsewhere, and the probe of a kernel's port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import zmq

from jupyter_exec_ext.engine.kernels import kernel_supervisor
from jupyter_exec_ext.engine.kernels.kernel_supervisor import Answer, Presence, RemoteLiveness, probe_port
from jupyter_exec_ext.engine.ports import KernelExit
from tests.support.remote_provisioner import free_port

SIGNS = {".": Presence.ALIVE, "g": Presence.GONE, "u": Presence.UNREACHABLE}
STEP_SECONDS = 3.0
GIVEN_UP = KernelExit(unreachable_seconds=120)


def verdict_on(answers: str) -> tuple[KernelExit | None, float]:
    """Return how a kernel ended after answers that come every 3 s, and when."""
    liveness, now = RemoteLiveness(0.0), 0.0
    for sign in answers:
        exit_ = liveness.note(Answer(SIGNS[sign]), now)
        if exit_ is not None:
            return exit_, now
        now += STEP_SECONDS
    return None, now


@pytest.mark.parametrize(
    "answers",
    ["." * 50, ".g.", ".gg.", ".u.", "." + "u" * 40 + ".", ".gu" * 10 + ".", ".ug.ug.ug.", "gg.gg.gg", ".u" * 60],
)
def test_kernel_that_answers_again_in_time_lives(answers: str) -> None:
    assert verdict_on(answers)[0] is None


@pytest.mark.parametrize(
    ("answers", "exit_", "seconds"),
    [
        (".ggg", KernelExit(), 9),
        ("ggg", KernelExit(), 6),
        (".uggg", KernelExit(), 12),
        (".gg.ggg", KernelExit(), 18),
        ("." + "u" * 60, GIVEN_UP, 123),
        ("." + "ggu" * 20, GIVEN_UP, 123),
        (".u.u" + "u" * 60, GIVEN_UP, 129),
    ],
)
def test_kernel_that_does_not_answer_again_has_ended(answers: str, exit_: KernelExit, seconds: float) -> None:
    assert verdict_on(answers) == (exit_, seconds)


def test_known_exit_counts_at_once() -> None:
    exit_ = KernelExit(signal="SIGKILL")
    assert RemoteLiveness(0.0).note(Answer(Presence.GONE, exit_), 0.0) is exit_


def test_unreachable_kernel_is_told_from_a_dead_one() -> None:
    assert str(GIVEN_UP) == "could not be reached for 120 s, and was given up"
    assert str(KernelExit()) == "ended"


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def greet_otherwise(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400\r\n\r\n")
    writer.close()


async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.mark.parametrize(
    ("serve", "presence"),
    [(close, Presence.GONE), (greet_otherwise, Presence.GONE), (be_silent, Presence.UNREACHABLE)],
)
async def test_port_without_a_kernel(serve: Serve, presence: Presence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_supervisor, "ANSWER_SECONDS", 0.3)
    async with serving(serve) as port:
        assert await probe_port({"ip": "127.0.0.1", "shell_port": port}) is presence


async def test_closed_port_is_gone() -> None:
    assert await probe_port({"ip": "127.0.0.1", "shell_port": free_port()}) is Presence.GONE


@pytest.mark.parametrize("ip", ["no-such-host.invalid", "300.1.1.1"])
async def test_unknown_machine_is_unreachable(ip: str) -> None:
    assert await probe_port({"ip": ip, "shell_port": 1}) is Presence.UNREACHABLE


@pytest.mark.parametrize("encrypted", [False, True])
def test_zeromq_greets_also_while_its_program_does_nothing(encrypted: bool) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        if encrypted:
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
            socket.curve_server = True
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        assert asyncio.run(probe_port({"ip": "127.0.0.1", "shell_port": port})) is Presence.ALIVE
