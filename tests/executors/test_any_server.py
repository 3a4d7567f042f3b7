"""Servers and kernels as there are many: without a sub-protocol, without authentication, with names of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext import AsyncExecClient, CodeBlock, EmbeddedIPythonCodeExecutor, ExecClient, JupyterCodeExecutor
from jupyter_exec_ext.client import JupyterConnectionInfo
from jupyter_exec_ext.errors import LanguageNotSupported
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from tests.executors.conftest import python
from tests.support.full import IS_FULL, only_in_full
from tests.support.hosts import Host, running_host

IPYKERNEL = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
# What the kernelspecs of these tests say of themselves. Their kernels are all IPython's.
LANGUAGES = {"NoLanguage": None, "MixedCase": "Python3", "cling": "C++17", "shell": "bash", "Sage": "sage"}
PLAIN = "--ExecExtensionApp.enabled=False"


def add_kernelspecs(data_dir: Path) -> None:
    for name, language in {**LANGUAGES, "python3": "python", "unforked": "python"}.items():
        metadata = {"kernel_provisioner": {"provisioner_name": "forkserver-provisioner"}}  # for fast starts
        spec: dict[str, Any] = {"argv": IPYKERNEL, "display_name": name}
        if name != "unforked":
            spec["metadata"] = metadata
        if language is not None:
            spec["language"] = language
        (data_dir / "kernels" / name).mkdir(parents=True)
        (data_dir / "kernels" / name / "kernel.json").write_text(json.dumps(spec))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Jupyter server without our API, which selects no sub-protocol and wants no token."""
    home = tmp_path_factory.mktemp("bare")
    add_kernelspecs(home / "jupyter_data_dir")
    no_subprotocol = "--ZMQChannelsWebsocketConnection.kernel_ws_protocol="
    with running_host("server", home, PLAIN, no_subprotocol, "--IdentityProvider.token=", token="") as host:
        yield host


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server with our API, which wants no token."""
    home = tmp_path_factory.mktemp("ours")
    add_kernelspecs(home / "jupyter_data_dir")
    with running_host("server", home, "--IdentityProvider.token=", token="") as host:
        yield host


Make = Callable[..., StatefulCodeExecutor]


@pytest.fixture(params=["standard", "exec/v1", "embedded"])
def make_named(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Make executors for a kernelspec of `LANGUAGES`."""
    made: list[StatefulCodeExecutor] = []
    if request.param == "embedded":
        add_kernelspecs(tmp_path / "jupyter_data_dir")
    else:
        host = request.getfixturevalue("bare" if request.param == "standard" else "ours")

    def make(kernel_name: str) -> StatefulCodeExecutor:
        options: dict[str, Any] = {"kernel_name": kernel_name, "output_dir": tmp_path}
        embedded = request.param == "embedded"
        made.append(EmbeddedIPythonCodeExecutor(**options) if embedded else JupyterCodeExecutor(host.info, **options))
        return made[-1]

    yield make
    for executor in made:
        executor.stop()


# --- the sub-protocol is an offer ---

RICH = "from IPython.display import display, Image\nprint('a' * 3_000_000)\ndisplay({'n': 1})\n1 / 0"


def test_a_server_that_selects_no_subprotocol_works_with_the_executor(bare: Host, tmp_path: Path) -> None:
    with JupyterCodeExecutor(bare.info, output_dir=tmp_path) as executor:
        assert executor.execute_code_blocks(python("print(42)")).output == "42\n"
        result = executor.execute_code_blocks(python(RICH))
        assert result.output.count("a") >= 3_000_000
        assert "{'n': 1}" in result.output
        assert "ZeroDivisionError" in result.output


@only_in_full
def test_executor_recovers_from_kernel_death_without_subprotocol(bare: Host, tmp_path: Path) -> None:
    with JupyterCodeExecutor(bare.info, output_dir=tmp_path) as executor:
        assert executor.execute_code_blocks(python("import os; os._exit(1)")).output.startswith("KernelDied")
        assert executor.execute_code_blocks(python("print('again')")).exit_code == 0


async def test_a_server_that_selects_no_subprotocol_works_with_both_clients(bare: Host) -> None:
    with ExecClient(bare.info) as client, client.standard_session() as session:
        assert session.run("print(42)").stdout == "42\n"
        assert [event.type for event in session.stream("print(1)")][-1] == "end"
        assert session.run("print(input('name: '))", on_input=lambda request: "Ada").stdout.endswith("Ada\n")
    async with AsyncExecClient(bare.info) as async_client:
        async_session = await async_client.standard_session()
        assert (await async_session.run("print(42)")).stdout == "42\n"
        await async_session.close()


@pytest.mark.skipif(not IS_FULL, reason="it takes two servers; it selects no sub-protocol either")
def test_a_server_with_a_gateway_behind_it_works(hosts: Any, tmp_path: Path) -> None:
    gateway = hosts["gateway"].info
    options = [f"--GatewayClient.url={gateway.url}", f"--GatewayClient.auth_token={gateway.token}", PLAIN]
    with (
        running_host("server", tmp_path, *options) as host,
        JupyterCodeExecutor(host.info, output_dir=tmp_path) as executor,
    ):
        assert executor.execute_code_blocks(python("x = 42", "print(x)")).output == "42\n"
        assert "ZeroDivisionError" in executor.execute_code_blocks(python("1 / 0")).output


# --- a token that is not wanted ---


@pytest.mark.parametrize("token", ["", "a b+c/d=", "left-over"][: 3 if IS_FULL else 2])
async def test_a_server_without_authentication_takes_any_token(
    ours: Host, bare: Host, tmp_path: Path, token: str | None
) -> None:
    (tmp_path / "data.txt").write_bytes(b"data")
    for host in (ours, bare):
        info = JupyterConnectionInfo("127.0.0.1", False, host.info.port, token)
        with ExecClient(info) as client, client.standard_session() as standard:
            assert standard.run("print(1)").stdout == "1\n"
    info = JupyterConnectionInfo("127.0.0.1", False, ours.info.port, token)
    with ExecClient(info) as client, client.session() as session:
        assert session.run("print(1)").stdout == "1\n"
        assert session.upload(tmp_path / "data.txt").size_bytes == 4
    async with AsyncExecClient(info) as async_client:
        async_session = await async_client.session()
        assert [event.type async for event in async_session.stream("1")][-1] == "end"
        await async_session.close()


def test_an_empty_token_is_none() -> None:
    for info in (
        JupyterConnectionInfo("h", True, None, ""),
        JupyterConnectionInfo.from_url("http://h/?token="),
        JupyterConnectionInfo.from_url("http://h/", ""),
    ):
        assert info.token is None
        assert info.auth_headers == {}


# --- names ---


@pytest.mark.parametrize("name", ["MixedCase", "mixedcase", "MIXEDCASE"])
def test_a_kernelspecs_name_is_the_same_in_capitals(make_named: Make, name: str) -> None:
    assert make_named(name).execute_code_blocks(python("print(42)")).output == "42\n"


@pytest.mark.parametrize(
    ("kernel_name", "names"),
    [
        ("NoLanguage", ["python", "py3", ""]),
        ("MixedCase", ["python", "python3.11", "pycon"]),
        ("cling", ["c++", "cpp", "C++20"]),
        ("shell", ["sh", "bash", "shell"]),
        ("Sage", ["python", "sage"]),
    ],
)
def test_block_runs_for_all_names_of_its_language(make_named: Make, kernel_name: str, names: list[str]) -> None:
    executor = make_named(kernel_name)
    for name in names:
        assert executor.execute_code_blocks([CodeBlock("print(7)", name)]).output == "7\n", name
    refused = executor.execute_code_blocks([CodeBlock("1", "cobol")])
    assert refused.exit_code == 1
    assert "not 'cobol'" in refused.output


def test_session_language_is_that_of_kernel_info(ours: Host) -> None:
    with ExecClient(ours.info) as client, client.session("NoLanguage") as session:
        assert session.record.language == "python"
        assert session.run("echo $((6 * 7))", language="bash").stdout == "42\n"
        with pytest.raises(LanguageNotSupported):
            session.run("1", language="rust")


# --- stopping while the server restarts the kernel ---


def kill_itself(pid: str = "os.getpid()") -> str:
    return f"import os, signal\nos.kill({pid}, signal.SIGKILL)"


@pytest.mark.parametrize("wait_seconds", [0.0, 0.01, 0.05, 0.1, 0.2] if IS_FULL else [0.0])
@pytest.mark.parametrize("death", [kill_itself(), "import os\nos._exit(3)"][: 2 if IS_FULL else 1])
@only_in_full
def test_stopping_while_the_kernel_is_restarted_ends_it(
    bare: Host, tmp_path: Path, wait_seconds: float, death: str
) -> None:
    executor = JupyterCodeExecutor(bare.info, "unforked", output_dir=tmp_path)
    assert executor.execute_code_blocks(python(death)).output.startswith("KernelDied")
    time.sleep(wait_seconds)  # the moment of the restart at which it is stopped
    executor.stop()
    assert requests.get(f"{bare.info.url}api/kernels", timeout=10).json() == []
    gone_by = time.monotonic() + 10
    while any("ipykernel_launcher" in child.cmdline() for child in psutil.Process(bare.pid).children()):
        assert time.monotonic() < gone_by, "a kernel's process is left"
        time.sleep(0.01)


def test_a_kernel_that_is_killed_from_outside_can_be_stopped(bare: Host) -> None:
    with ExecClient(bare.info) as client:
        session = client.standard_session()
        os.kill(int(session.run("import os; print(os.getpid())").stdout), signal.SIGKILL)
        session.close()
    assert requests.get(f"{bare.info.url}api/kernels", timeout=10).json() == []
