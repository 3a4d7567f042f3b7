"""`JupyterCodeExecutor` on real servers, through our API and through the standard one, with the same results."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import trustme
import websocket

from jupyter_exec_ext import CodeBlock, EmbeddedIPythonCodeExecutor, JupyterCodeExecutor, JupyterConnectionInfo
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.client.jupyter import kernel_websocket, standard_run
from jupyter_exec_ext.client.sync.standard_session import StandardExecSession
from jupyter_exec_ext.errors import ConnectionFailed, Forbidden, SessionEnded, Unauthenticated
from jupyter_exec_ext.executors.code_blocks import IPythonCodeResult
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from jupyter_exec_ext.protocol.kernel_messages import decode_websocket, encode_websocket, new_header
from tests.adapters.doorbell import Doorbell
from tests.executors.conftest import Make, python
from tests.executors.seed_examples import REMOTE
from tests.support.bearers import UNPROTECTED, mint
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, running_host
from tests.support.session_processes import has_ended
from tests.support.tcp_proxies import CuttingProxy, hang_up


def test_a_server_without_our_api_is_served_by_the_standard_one(plain_server: Host, hosts: Any) -> None:
    with JupyterCodeExecutor(plain_server.info) as fallback, JupyterCodeExecutor(hosts["server"].info) as ours:
        assert isinstance(fallback._session, StandardExecSession)
        assert not isinstance(ours._session, StandardExecSession)


def test_state_is_kept_between_blocks_and_calls(executor: StatefulCodeExecutor) -> None:
    assert executor.execute_code_blocks(python("x = 3", "print(x)")).output == "3\n"
    assert executor.execute_code_blocks(python("print(x + 1)")).output == "4\n"


def test_refused_code_is_a_result_also_by_a_token_with_a_policy(tmp_path: Path) -> None:
    with running_host("server", tmp_path, UNPROTECTED) as host:
        info = replace(host.info, token=mint(host, max_code_bytes=100).token)
        with JupyterCodeExecutor(info) as executor:
            for code, reason in (("#" * 101, "allows 100 bytes of code, not 101"), ("#" * 10_000_000, "at most")):
                result = executor.execute_code_blocks(python("x = 1", code, "print('never')"))
                assert result.exit_code == 1
                assert result.output.startswith("Not run: ")
                assert reason in result.output
            assert executor.execute_code_blocks(python("print(x)")).output == "1\n"


def after_its_kernel_was_killed(executor: StatefulCodeExecutor, blocks: list[CodeBlock]) -> IPythonCodeResult:
    """Kill the kernel while nothing runs, and run blocks; again if they reached the kernel that was just ending."""
    for _ in range(10):
        marked = executor.execute_code_blocks(python("import os; marker = 1; print(os.getpid())"))
        if marked.exit_code:  # the end of the kernel before was only noticed by this code
            continue
        process = psutil.Process(int(marked.output.split()[-1]))
        process.kill()
        give_up_at = time.monotonic() + 10
        while not has_ended(process) and time.monotonic() < give_up_at:
            time.sleep(0.01)
        result = executor.execute_code_blocks(blocks)
        # A server without exec/v1 may begin to read the new kernel's output too late; the result says so.
        if "KernelDied" not in result.output and "incomplete" not in result.output.lower():
            return result
    raise AssertionError(result)


def test_blocks_after_the_state_was_lost_do_not_run_unless_they_are_to(make: Make) -> None:
    executor = make()
    blocks = python("print('marker' in globals())", "print('second')")
    for choice, exit_code, rest in (("fail", 1, "False\n"), ("continue", 0, "False\nsecond\n")):
        executor._on_state_lost = choice  # type: ignore[assignment]
        result = after_its_kernel_was_killed(executor, blocks)
        told, _, output = result.output.partition("\n")
        assert told.startswith("State lost: the kernel "), result
        assert (result.exit_code, output) == (exit_code, rest)
        assert executor.execute_code_blocks(blocks) == IPythonCodeResult(0, "False\nsecond\n")


@pytest.mark.parametrize("kind", [JupyterCodeExecutor, EmbeddedIPythonCodeExecutor])
def test_another_choice_for_lost_state_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="on_state_lost must be 'fail' or 'continue', not 'ignore'"):
        kind(*([JupyterConnectionInfo("x", False)] if kind is JupyterCodeExecutor else []), on_state_lost="ignore")


def test_output_of_a_task_that_goes_on_is_in_the_next_block(executor: StatefulCodeExecutor) -> None:
    code = (
        "import asyncio; go_on = asyncio.Event()\n"
        "async def write():\n    await go_on.wait()\n    print('late', flush=True)\n"
        "task = asyncio.create_task(write())"
    )
    result = executor.execute_code_blocks(python(code, "go_on.set(); await task; print('own')", "print('third')"))
    assert (
        result.output
        == "late\nown\nLate: some of this output is from earlier code, which wrote it after its end\nthird\n"
    )


def test_blocks_after_a_failing_one_do_not_run_and_nothing_before_is_lost(executor: StatefulCodeExecutor) -> None:
    blocks = python(
        "print('first')", "from IPython.display import HTML, display; display(HTML('<p>'))\n1/0", "print(2)"
    )
    result = executor.execute_code_blocks(blocks)
    assert result.exit_code == 1
    first, saved, *traceback = result.output.split("\n")
    assert first == "first"
    assert saved == f"HTML data saved to {result.output_files[0]}"
    assert traceback[-1] == "ZeroDivisionError: division by zero"
    assert "\x1b" not in result.output


def test_pictures_are_saved_to_the_output_dir(executor: StatefulCodeExecutor, tmp_path: Path) -> None:
    code = "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(60)))"
    result = executor.execute_code_blocks(python(code))
    (path,) = result.output_files
    assert Path(path).parent == tmp_path
    assert result.output == f"Image data saved to {path}"


def test_the_language_of_a_block_counts(executor: StatefulCodeExecutor) -> None:
    assert executor.execute_code_blocks([CodeBlock("echo $((6*7))", "bash")]).output == "42\n"
    assert executor.execute_code_blocks([CodeBlock("print(1)", "")]).output == "1\n"
    refused = executor.execute_code_blocks([*python("print('ran')"), CodeBlock("fn main() {}", "rust")])
    assert refused.exit_code == 1
    assert refused.output.startswith("ran\nNot run: ")


def test_code_is_not_rewritten(executor: StatefulCodeExecutor) -> None:
    code = "text = '''\n! pip install x\n'''\nprint(text.strip())"
    assert executor.execute_code_blocks(python(code)).output == "! pip install x\n"


def test_the_timeout_is_total_stops_the_code_and_keeps_the_state(make: Make) -> None:
    with make(timeout=1) as executor:
        executor.execute_code_blocks(python("kept = 1"))
        began = time.monotonic()
        code = "import time\nfor i in range(100):\n    print(i, flush=True)\n    time.sleep(0.2)\nfinished = True"
        result = executor.execute_code_blocks(python(code))
        assert time.monotonic() - began < 12
        assert result.exit_code == 1
        assert result.output.startswith("0\n1\n")
        assert "Timeout: its time limit of 1 s was reached; the session's variables were kept" in result.output
        again = executor.execute_code_blocks(python("print(kept, 'finished' in globals())"))
        assert again.output == "1 False\n"


def test_a_dying_kernel_is_named_and_the_next_call_works(executor: StatefulCodeExecutor) -> None:
    result = executor.execute_code_blocks(python("import os; os._exit(1)"))
    assert result.exit_code == 1
    assert "KernelDied" in result.output
    assert executor.execute_code_blocks(python("print('again')")).output == "again\n"


def test_restart_begins_afresh(executor: StatefulCodeExecutor) -> None:
    executor.execute_code_blocks(python("x = 1"))
    executor.restart()
    assert executor.execute_code_blocks(python("print('x' in globals())")).output == "False\n"


def test_two_threads_may_share_an_executor(executor: StatefulCodeExecutor) -> None:
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda n: executor.execute_code_blocks(python(f"print({n})")).output, range(8)))
    assert outputs == [f"{n}\n" for n in range(8)]


def test_two_executors_share_nothing(make: Make) -> None:
    with make() as one, make() as other:
        one.execute_code_blocks(python("x = 1"))
        assert "NameError" in other.execute_code_blocks(python("x")).output


def test_stopping_shuts_the_kernel_down_and_may_be_repeated(server: Host) -> None:
    before = kernels(server)
    executor = JupyterCodeExecutor(server.info)
    assert len(kernels(server) - before) == 1
    executor.stop()
    executor.stop()
    assert kernels(server) <= before


def kernels(server: Host) -> set[str]:
    answer = requests.get(f"{server.info.url}api/kernels", headers=server.info.auth_headers, timeout=30)
    return {kernel["id"] for kernel in answer.json()}


def remove_kernel(server: Host, kernel_id: str) -> None:
    url = f"{server.info.url}api/kernels/{kernel_id}"
    requests.delete(url, headers=server.info.auth_headers, timeout=30).raise_for_status()


def connections_to(server: Host) -> int:
    """Return how many connections there are from here that we have not closed; those of others to it end by then."""
    ours = psutil.Process().net_connections("tcp")
    open_states = (psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT)
    return Counter(c.raddr.port for c in ours if c.raddr and c.status in open_states)[server.info.port or 0]


def test_restarting_and_stopping_leave_no_connection(server: Host) -> None:
    before = connections_to(server)
    executor = JupyterCodeExecutor(server.info)
    executor.execute_code_blocks(python("1"))
    in_use = connections_to(server)
    for _ in range(3):
        executor.restart()
        executor.execute_code_blocks(python("1"))
    assert connections_to(server) <= in_use
    executor.stop()
    assert connections_to(server) == before


def test_replacing_a_session_that_has_ended_leaves_no_connection(
    plain_server: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_run, "_LOOK_SECONDS", 0.5)
    with JupyterCodeExecutor(plain_server.info) as executor:
        executor.execute_code_blocks(python("1"))
        in_use = connections_to(plain_server)
        for _ in range(2):
            ended = executor._session
            remove_kernel(plain_server, ended.id)
            while executor._session is ended:
                assert executor.execute_code_blocks(python("1")).exit_code == 1
            assert executor.execute_code_blocks(python("print(1)")).output == "1\n"
        assert connections_to(plain_server) == in_use


def test_stopping_when_the_kernel_is_gone_is_no_error(server: Host) -> None:
    before, others = connections_to(server), kernels(server)
    executor = JupyterCodeExecutor(server.info)
    (kernel_id,) = kernels(server) - others
    remove_kernel(server, kernel_id)
    executor.stop()
    assert connections_to(server) == before


def test_a_connection_that_is_cut_between_two_calls_is_made_anew(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy does with one that nobody uses."""
    monkeypatch.setattr(kernel_websocket, "_TRUSTED_SECONDS", 0.0)  # as if it had been unused for long
    with CuttingProxy(server.info, cut_after_bytes=0, max_cuts=0) as proxy, JupyterCodeExecutor(proxy.info) as executor:
        for n in range(3):
            assert executor.execute_code_blocks(python(f"n = {n}", "print(n)")).output == f"{n}\n"
            for side in proxy._sockets:
                hang_up(side)
            assert executor.execute_code_blocks(python("print(n)")).output == f"{n}\n"


def test_ctrl_c_stops_the_code_and_not_the_session(executor: StatefulCodeExecutor) -> None:
    doorbell = Doorbell()
    executor.execute_code_blocks(python("kept = 1"))
    began = time.monotonic()
    with doorbell.interrupts_this_thread():
        executor.execute_code_blocks(python(doorbell.code))
    doorbell.close()
    assert time.monotonic() - began < 10  # the code's own time limit is 20 s
    assert executor.execute_code_blocks(python("print(kept)")).output == "1\n"


def test_code_that_the_kernel_skipped_did_not_run_and_that_is_said(plain_server: Host) -> None:
    """Somebody else's code fails before it, and has the kernel drop all that waits."""
    with JupyterCodeExecutor(plain_server.info) as executor:
        doorbell = Doorbell()
        url = f"{plain_server.info.ws_url}api/kernels/{executor._session.id}/channels"
        other = websocket.create_connection(url, header=plain_server.info.auth_headers, timeout=30)
        code = f"{doorbell.code.partition('while')[0]}import time; time.sleep(2)\n1 / 0"
        request = {"code": code, "silent": False, "allow_stdin": False, "stop_on_error": True}
        header = new_header("execute_request", "other")
        other.send(encode_websocket("shell", header, request, binary=False))
        doorbell.wait()
        result = executor.execute_code_blocks(python("ran = 1; print('ran')"))
        replied = False
        while not replied:
            message = decode_websocket(other.recv())
            replied = message.msg_type == "execute_reply" and message.parent_id == header["msg_id"]
        other.close()
        doorbell.close()
        assert result.exit_code == 1
        assert result.output.startswith("Cancelled: the kernel skipped it"), result.output
        assert executor.execute_code_blocks(python("print('ran' in globals())")).output == "False\n"


def test_output_dropped_by_server_is_reported(tmp_path: Path) -> None:
    """A Jupyter Server lets a million bytes a second through, and says so in the place of the rest."""
    options = ["--ExecExtensionApp.enabled=False", "--ZMQChannelsWebsocketConnection.limit_rate=True"]
    with running_host("server", tmp_path, *options) as limited, JupyterCodeExecutor(limited.info) as executor:
        result = executor.execute_code_blocks(python("for _ in range(8): print('x' * 1_000_000)"))
        assert len(result.output) < 8_000_000
        assert result.output.splitlines()[-1].startswith("Incomplete: some output may have been lost")
        assert executor.execute_code_blocks(python("print('goes on')")).output == "goes on\n"


def test_a_session_that_the_server_has_ended_is_replaced_and_that_is_said(hosts: Any) -> None:
    server: Host = hosts["server"]
    with JupyterCodeExecutor(server.info) as executor:
        executor.execute_code_blocks(python("x = 1"))
        with ExecClient(server.info) as client:
            client.get_session(executor._session.id).close()
        result = executor.execute_code_blocks(python("print('ran')"))
        assert result.exit_code == 1
        assert "A fresh session was started" in result.output
        assert executor.execute_code_blocks(python("print('ran')")).output == "ran\n"


def test_threads_that_find_the_session_ended_open_one_in_its_place(hosts: Any) -> None:
    server: Host = hosts["server"]
    with ExecClient(server.info) as client, JupyterCodeExecutor(server.info) as executor:
        client.get_session(executor._session.id).close()
        before = {session.id for session in client.list_sessions()}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: executor.execute_code_blocks(python(str(n))), range(8)))
        assert len({session.id for session in client.list_sessions()} - before) == 1


def test_restart_ends_endless_block(executor: StatefulCodeExecutor) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.execute_code_blocks, python("while True: pass"))
        time.sleep(1.0)
        executor.restart()
        assert running.result(15).exit_code == 1
    assert executor.execute_code_blocks(python("print('free')")).output == "free\n"


@only_in_full
def test_stopping_when_the_server_is_gone_is_no_error(tmp_path: Path) -> None:
    with running_host("server", tmp_path) as server:
        executor = JupyterCodeExecutor(server.info)
        with running_host("gateway", tmp_path / "other") as gateway:
            other = JupyterCodeExecutor(gateway.info)
    executor.stop()
    with pytest.raises(ZeroDivisionError), other:
        raise ZeroDivisionError


def test_stopped_executor_raises_session_ended(hosts: Any) -> None:
    executor = JupyterCodeExecutor(hosts["server"].info)
    executor.stop()
    for call in (lambda: executor.execute_code_blocks(python("1")), executor.restart):
        with pytest.raises(SessionEnded, match="stopped"):
            call()


# --- what AutoGen's constructor promises ---


def test_arguments_are_checked_as_autogen_does(hosts: Any, tmp_path: Path) -> None:
    info = hosts["server"].info
    with pytest.raises(ValueError, match=r"Timeout must be greater than or equal to 1\."):
        JupyterCodeExecutor(info, timeout=0)
    with pytest.raises(ValueError, match=r"does not exist; create it, or pass output_dir="):
        JupyterCodeExecutor(info, output_dir=tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is not a directory"):
        JupyterCodeExecutor(info, output_dir=tmp_path / "file")
    wrong: Any = "http://localhost"
    with pytest.raises(ValueError, match="JupyterConnectable or JupyterConnectionInfo"):
        JupyterCodeExecutor(5)  # type: ignore[arg-type]
    assert isinstance(wrong, str)
    with pytest.raises(ValueError, match=r"Kernel nope is not installed\."):
        JupyterCodeExecutor(info, kernel_name="nope")


def test_a_kernel_that_is_not_installed_is_refused_by_a_plain_server_too(plain_server: Host) -> None:
    with pytest.raises(ValueError, match=r"Kernel nope is not installed\."):
        JupyterCodeExecutor(plain_server.info, kernel_name="nope")


def test_a_wrong_token_and_a_missing_server_are_named(server: Host) -> None:
    wrong = JupyterConnectionInfo(server.info.host, False, server.info.port, "wrong", server.info.base_url)
    with pytest.raises((Unauthenticated, Forbidden), match="token"):
        JupyterCodeExecutor(wrong)
    with pytest.raises(ConnectionFailed):
        JupyterCodeExecutor(JupyterConnectionInfo("127.0.0.1", False, free_port()))


def test_the_executor_has_the_parts_of_autogens_protocol(executor: StatefulCodeExecutor) -> None:
    blocks = executor.code_extractor.extract_code_blocks("```python\nprint(1)\n```")
    assert executor.execute_code_blocks(blocks).output == "1\n"
    assert callable(executor.restart)
    assert "'***'" in repr(executor) or repr(executor).startswith("Embedded")


def test_the_seeds_remote_example_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server named example.com, over TLS, on the example's port; only the name's address is ours."""
    authority = trustme.CA()
    certificate = authority.issue_cert("example.com", "127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    resolve = socket.getaddrinfo

    def resolve_example(host: Any, *args: Any, **kwargs: Any) -> Any:
        return resolve("127.0.0.1" if host == "example.com" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_example)
    options = [
        f"--ServerApp.certfile={tmp_path / 'cert.pem'}",
        f"--ServerApp.keyfile={tmp_path / 'key.pem'}",
        "--ServerApp.local_hostnames=example.com",
        "--ServerApp.local_hostnames=localhost",
    ]
    tls = {"use_https": True, "verify": str(tmp_path / "ca.pem")}
    with running_host("server", tmp_path, *options, token="mytoken", port=7893, connect=tls):
        names: dict[str, Any] = {}
        exec(REMOTE, names)
        executor: JupyterCodeExecutor = names["executor"]
        assert executor.execute_code_blocks(python("print('over TLS')")).output == "over TLS\n"
        executor.stop()
        with ExecClient(executor._connection_info) as client, client.standard_session() as session:
            assert session.run("print('over WSS')").stdout == "over WSS\n"
    assert threading.active_count() < 50


def test_code_has_the_executors_variables_also_after_its_kernel_died(hosts: Any) -> None:
    with JupyterCodeExecutor(hosts["server"].info, env={"KERNEL_FLAVOUR": "vanilla"}) as executor:
        read = python("import os; print(os.environ['KERNEL_FLAVOUR'])")
        assert executor.execute_code_blocks(read).output == "vanilla\n"
        assert after_its_kernel_was_killed(executor, read).output.endswith("vanilla\n")
