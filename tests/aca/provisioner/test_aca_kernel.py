"""Kernels that are sessions of a pool, through their life: what the service cannot do is said, and nothing leaks."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.aca.provisioner import ACAProvisioner
from jupyter_exec_ext.aca.provisioner.aca_kernel import NO_INTERRUPT
from tests.support.hosts import Host

from .pools import VARIABLE, Running, add_aca_kernelspec, add_plain_kernelspec, running_kernel


@pytest.fixture(autouse=True)
def _pool(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, server.info.token or "")
    add_aca_kernelspec(os.environ["JUPYTER_DATA_DIR"], "remote", server)


def names_of_sessions(server: Host) -> list[str]:
    """Return the names of the sessions that the pool has."""
    answer = requests.get(f"{server.info.url}exec/v1/sessions", headers=server.info.auth_headers, timeout=30)
    return [session["name"] for session in answer.json()["sessions"]]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does, which tells nobody."""

    def look() -> None:
        give_up_at = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < give_up_at
            time.sleep(0.05)

    await asyncio.to_thread(look)


async def begin(kernel: Running, code: str) -> None:
    """Let the kernel begin to run code."""
    msg_id = kernel.client.execute(code, allow_stdin=False)
    while True:
        message = await kernel.client.get_iopub_msg(timeout=20)
        if message["parent_header"].get("msg_id") == msg_id and message["msg_type"] == "execute_input":
            return


def end_session(server: Host, identifier: str) -> None:
    """End a session behind its kernel's back."""
    query = {"identifier": identifier, "api-version": "2025-10-02-preview"}
    headers = server.info.auth_headers
    requests.delete(f"{server.info.url}exec/aca/session", params=query, headers=headers, timeout=30).raise_for_status()


# --- the life of a session ---


async def test_a_session_begins_with_the_first_request_and_ends_with_the_kernel(server: Host) -> None:
    async with running_kernel("remote") as kernel:
        assert kernel.identifier == ""  # it was asked for its version, and cost nothing
        assert (await kernel.run("1 + 1")).reply["status"] == "ok"
        identifier = kernel.identifier
        assert identifier in names_of_sessions(server)
    await until(lambda: identifier not in names_of_sessions(server))


async def test_a_restarted_kernel_has_a_fresh_session(server: Host) -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("x = 1")
        before, ports = kernel.identifier, kernel.manager.ports
        await kernel.manager.restart_kernel()
        await kernel.client.wait_for_ready(timeout=60)
        ran = await kernel.run("x")
        assert (ran.reply["status"], ran.reply["ename"], ran.reply["execution_count"]) == ("error", "NameError", 1)
        assert kernel.identifier != before
        assert kernel.manager.ports == ports
        await until(lambda: before not in names_of_sessions(server))


async def test_a_session_that_asks_to_exit_ends_the_kernel() -> None:
    """As IPython's own ``exit`` does; in kernels of ours that ends the code alone."""
    async with running_kernel("remote") as kernel:
        asking = "get_ipython().payload_manager.write_payload({'source': 'ask_exit', 'keepkernel': False})"
        assert (await kernel.run(asking)).reply["status"] == "ok"
        assert kernel.manager.provisioner is not None
        assert await kernel.manager.provisioner.wait() == 0
        assert not await kernel.manager.is_alive()


async def test_a_kernel_that_dies_on_azures_side_is_dead_here_too(server: Host) -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("x = 1")
        before = kernel.identifier
        kernel.client.execute("import os; os._exit(3)")
        assert kernel.manager.provisioner is not None
        assert await asyncio.wait_for(kernel.manager.provisioner.wait(), 60) == 1
        await kernel.manager.restart_kernel()
        await kernel.client.wait_for_ready(timeout=60)
        assert (await kernel.run("x")).reply["ename"] == "NameError"
        assert kernel.identifier != before


async def test_a_time_limit_leaves_the_state_where_the_service_does(server: Host) -> None:
    add_aca_kernelspec(os.environ["JUPYTER_DATA_DIR"], "limited", server, timeout_seconds=1)
    async with running_kernel("limited") as kernel:
        await kernel.run("x = 1")
        ran = await kernel.run("import time; time.sleep(60)")
        assert ran.reply["status"] == "error"
        again = await kernel.run("x")
        assert again.outputs[-1][1]["data"]["text/plain"] == "1"


async def test_a_session_that_is_gone_is_told_and_the_code_not_run_elsewhere(server: Host) -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("x = 1")
        expired = kernel.identifier
        await asyncio.to_thread(end_session, server, expired)
        ran = await kernel.run("print('ran')")
        assert (ran.reply["status"], ran.reply["ename"]) == ("error", "SessionExpired")
        assert ran.text("stdout") == ""
        assert "variables and files are gone" in ran.reply["evalue"]
        again = await kernel.run("'x' in globals()")
        assert again.outputs[-1][1]["data"]["text/plain"] == "False"
        assert again.reply["execution_count"] == 3
        # The pool has made another session for the code that was not run.
        await until(lambda: names_of_sessions(server).count(expired) == 0)


# --- what it cannot do ---


async def test_an_interrupt_is_answered_with_what_can_be_done(server: Host) -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("1")
        await begin(kernel, "import time; time.sleep(2); print('done')")
        waiting = kernel.client.execute("print('must not run')")
        client = kernel.client
        client.control_channel.send(client.session.msg("interrupt_request", {}))
        reply = await client.get_control_msg(timeout=20)
        assert (reply["content"]["status"], reply["content"]["evalue"]) == ("error", NO_INTERRUPT)
        outputs: list[str] = []
        replies: dict[str, str] = {}
        while len(replies) < 2:
            message = await client.get_shell_msg(timeout=20)
            replies[message["parent_header"]["msg_id"]] = message["content"]["status"]
        assert replies.pop(waiting) == "aborted"
        assert list(replies.values()) == ["ok"]
        while not outputs or outputs[-1] != "done\n":
            message = await client.get_iopub_msg(timeout=20)
            if message["msg_type"] == "stream":
                outputs.append(message["content"]["text"])
        assert outputs == [f"{NO_INTERRUPT}.\n", "done\n"]


@pytest.mark.parametrize("question", ["interrupt_request", "kernel_info_request"])
async def test_what_is_asked_meanwhile_does_not_make_a_busy_kernel_look_idle(question: str) -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("1")
        await begin(kernel, "import time; time.sleep(2)")
        client = kernel.client
        client.control_channel.send(client.session.msg(question, {}))
        states: list[tuple[str, str]] = []
        while not states or states[-1] != ("execute_request", "idle"):
            message = await client.get_iopub_msg(timeout=20)
            if message["msg_type"] == "status":
                states.append((message["parent_header"]["msg_type"], message["content"]["execution_state"]))
        of_question = [(question, "busy"), (question, "idle")]
        assert states == [*of_question, ("execute_request", "busy"), ("execute_request", "idle")]


async def test_nothing_to_interrupt_is_no_error() -> None:
    async with running_kernel("remote") as kernel:
        client = kernel.client
        client.control_channel.send(client.session.msg("interrupt_request", {}))
        assert (await client.get_control_msg(timeout=20))["content"] == {"status": "ok"}


async def test_a_running_cell_is_given_up_with_the_kernel(server: Host) -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("1")
        identifier = kernel.identifier
        await begin(kernel, "import time; time.sleep(60)")
        await kernel.manager.shutdown_kernel(now=True)
        await until(lambda: identifier not in names_of_sessions(server))


async def test_comms_are_closed_as_soon_as_they_are_opened() -> None:
    async with running_kernel("remote") as kernel:
        client = kernel.client
        client.shell_channel.send(client.session.msg("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}))
        while True:
            message = await client.get_iopub_msg(timeout=20)
            if message["msg_type"] == "comm_close":
                assert message["content"]["comm_id"] == "c"
                return


# --- what is handed over ---


async def test_programs_that_the_code_starts_are_heard() -> None:
    async with running_kernel("remote") as kernel:
        ran = await kernel.run("import os, time; os.system('echo sub'); time.sleep(0.5)")
        assert ran.text("stdout") == "sub\n"


async def test_large_output_comes_in_pieces_and_too_much_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.aca_session._STREAMS_MAX_LENGTH", 80 * 1024)
    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.session_answers.MAX_OUTPUT_CHARACTERS", 600_000)
    async with running_kernel("remote") as kernel:
        code = "import random; text = '%x' % random.getrandbits({}); print(text, end=''); len(text)"
        ran = await kernel.run(code.format(2_000_000))
        assert str(len(ran.text("stdout"))) == ran.outputs[-1][1]["data"]["text/plain"]
        ran = await kernel.run(code.format(4_000_000))
        assert len(ran.text("stdout")) == 600_000
        assert "characters of output were left out" in ran.text("stderr")


async def test_as_much_output_as_may_be_comes_in_any_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.session_answers.MAX_OUTPUT_CHARACTERS", 10_000)
    monkeypatch.setattr("jupyter_exec_ext.aca.provisioner.session_answers._MAX_ANSWER_BYTES", 42_000)
    async with running_kernel("remote") as kernel:
        ran = await kernel.run("print('\U0001f600' * 10_000, end='')")
        assert ran.text("stdout") == "\U0001f600" * 10_000


_TEE = """
import sys
class Tee:
    def __init__(self, stream):
        self.stream, self.kept = stream, []
    def write(self, text):
        self.kept.append(text)
        return self.stream.write(text)
    def flush(self):
        self.stream.flush()
before = sys.stdout, sys.stderr
sys.stdout, sys.stderr = Tee(sys.stdout), Tee(sys.stderr)
print("first")
"""
_AFTER_IT = ("1 / 0", "sys.stdout, sys.stderr = before", "print('last')")


async def test_a_stream_around_ours_stays_and_what_it_writes_is_output_of_the_cell_that_wrote_it() -> None:
    async with running_kernel("remote") as kernel:
        assert (await kernel.run(_TEE)).text("stdout") == "first\n"
        ran = await kernel.run("print('second'); print('err', file=sys.stderr); 1")
        assert (ran.text("stdout"), ran.text("stderr"), values_of(ran.outputs)) == ("second\n", "err\n", ["1"])
        assert values_of((await kernel.run("''.join(sys.stdout.kept)")).outputs) == [r"'first\nsecond\n'"]
        *_, last = [await kernel.run(code) for code in _AFTER_IT]
        assert last.text("stdout") == "last\n"


async def test_a_stream_in_place_of_ours_stays_as_in_a_local_kernel() -> None:
    add_plain_kernelspec("local")
    code = "import io, sys; before = sys.stdout, sys.stderr; sys.stdout = io.StringIO(); print('first')"
    seen = []
    for name in ("remote", "local"):
        async with running_kernel(name) as kernel:
            ran = [await kernel.run(each) for each in (code, "print('second'); 1", "sys.stdout.getvalue()", *_AFTER_IT)]
            seen.append([(each.reply["status"], each.text("stdout"), values_of(each.outputs)) for each in ran])
    assert seen[0] == seen[1]
    assert seen[0][2] == ("ok", "", [r"'first\nsecond\n'"])
    assert seen[0][-1] == ("ok", "last\n", [])


def values_of(outputs: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the values that are shown."""
    return [content["data"]["text/plain"] for kind, content in outputs if kind == "execute_result"]


async def test_a_stream_that_cannot_be_flushed_does_not_break_the_kernel() -> None:
    async with running_kernel("remote") as kernel:
        await kernel.run("import sys\nclass Null:\n    write = len\nbefore, sys.stdout = sys.stdout, Null()")
        ran = await kernel.run("print('x'); print(type(sys.stdout).__name__, file=before)")
        assert (ran.reply["status"], ran.text("stdout")) == ("ok", "Null\n")
        await kernel.run("sys.stdout = before")
        assert (await kernel.run("print('last')")).text("stdout") == "last\n"


# --- credentials and the environment ---

_LOOK = """
import json, os, sys
seen = [dict(os.environ), sys.argv, open('/proc/self/cmdline').read(), {k: repr(v) for k, v in globals().items()}]
seen += [repr(vars(m)) for n, m in sys.modules.items() if 'jupyter_exec' in n]
print(json.dumps(seen, default=repr))
"""


async def test_the_credential_is_not_in_the_session_and_not_in_files(server: Host) -> None:
    token = server.info.token or ""
    async with running_kernel("remote", env={**os.environ, "SOME_SECRET": "s3cret-canary"}) as kernel:
        seen = (await kernel.run(_LOOK)).text("stdout")
        assert len(seen) > 100
        assert "s3cret-canary" not in seen
        assert VARIABLE not in seen
        connection_file = Path(kernel.manager.connection_file).read_text()
        assert token not in connection_file
        assert token not in repr(vars(kernel.manager.provisioner))


async def test_only_named_variables_are_sent(server: Host) -> None:
    add_aca_kernelspec(
        os.environ["JUPYTER_DATA_DIR"], "with-env", server, env=["GIVEN_*"], spec_env={"OWN": "mine-${GIVEN_ONE}"}
    )
    async with running_kernel("with-env", env={**os.environ, "GIVEN_ONE": "1", "OTHER": "2"}) as kernel:
        ran = await kernel.run("import os; [os.environ.get(n) for n in ('OWN', 'GIVEN_ONE', 'OTHER')]")
        assert ran.outputs[-1][1]["data"]["text/plain"] == "['mine-1', '1', None]"


async def test_a_token_that_is_refused_is_told_where_the_code_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "wrong-token-of-a-test")
    async with running_kernel("remote") as kernel:
        ran = await kernel.run("1")
        assert ran.reply["status"] == "error"
        assert ran.reply["ename"] in ("Unauthenticated", "Forbidden")
        assert "wrong-token" not in json.dumps(ran.outputs)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"credential": "eyJ0eXAi.a.b"}, "name of a source"),
        ({"endpoint": "https://elsewhere.example/pool"}, "must not be sent"),
        ({"api_version": "2019-01-01"}, "unknown api-version"),
        ({"allowed_hosts": ["*"]}, "cannot set allowed_hosts"),
    ],
)
async def test_a_kernelspec_that_would_give_tokens_away_starts_nothing(
    server: Host, config: dict[str, Any], said: str
) -> None:
    add_aca_kernelspec(os.environ["JUPYTER_DATA_DIR"], "wrong", server, **config)
    with pytest.raises(Exception, match=said) as caught:
        async with running_kernel("wrong"):
            pass
    assert "eyJ0eXAi" not in str(caught.value)


# --- in the process ---


async def test_messages_can_be_encrypted() -> None:
    manager = AsyncKernelManager(kernel_name="remote", transport_encryption="required")
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        assert manager.get_connection_info()["curve_publickey"]
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def test_all_kernels_share_one_thread_which_ends_with_the_last() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "aca-kernels"]

    async with running_kernel("remote"), running_kernel("remote"):
        assert len(threads()) == 1
        (thread,) = threads()
    await asyncio.to_thread(thread.join, 70)
    assert threads() == []


def test_it_counts_as_remote() -> None:
    assert ACAProvisioner.level == "remote"
    assert ACAProvisioner.unavailable() is None
