"""The document that the executor for ACA sessions follows: each of its members, and each of its sentences."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_exec_ext
from jupyter_exec_ext import ACADynamicSessionsCodeExecutor, AccessToken, CodeBlock, FunctionWithRequirements
from tests.aca.executor.pools import Cancellation, HostsToken, endpoint_of, python
from tests.adapters.beacon import beacon
from tests.support.full import only_in_full
from tests.support.hosts import Host

# As the document has it: names, order, defaults.
PARAMETERS = {
    "pool_management_endpoint": inspect.Parameter.empty,
    "credential": inspect.Parameter.empty,
    "timeout": 60,
    "work_dir": ".",
    "functions": (),
    "functions_module": "functions",
}
# What autogen-ext 0.7.5 has beyond it.
LATER_PARAMETERS = {"suppress_result_output": False, "session_id": None}
COROUTINES = {
    "download_files": ["files", "cancellation_token"],
    "execute_code_blocks": ["code_blocks", "cancellation_token"],
    "get_available_packages": ["cancellation_token"],
    "get_file_list": ["cancellation_token"],
    "restart": [],
    "upload_files": ["files", "cancellation_token"],
    "start": [],
    "stop": [],
}
PROPERTIES = ["functions", "functions_module", "timeout", "work_dir"]


@pytest.fixture
async def executor(hosts: Any, tmp_path: Path) -> AsyncIterator[ACADynamicSessionsCodeExecutor]:
    host: Host = hosts["server"]
    async with ACADynamicSessionsCodeExecutor(endpoint_of(host), HostsToken(host), work_dir=tmp_path) as executor:
        yield executor


def make(**options: Any) -> ACADynamicSessionsCodeExecutor:
    return ACADynamicSessionsCodeExecutor("https://r.dynamicsessions.io/p", None, **options)  # type: ignore[arg-type]


def test_the_constructor_is_the_documents() -> None:
    parameters = inspect.signature(ACADynamicSessionsCodeExecutor).parameters
    by_position = {name: p.default for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(by_position) == [*PARAMETERS, *LATER_PARAMETERS]
    assert by_position == {**PARAMETERS, **LATER_PARAMETERS}


@pytest.mark.parametrize("name", COROUTINES)
def test_each_method_is_a_coroutine_with_the_documents_parameters(name: str) -> None:
    method = getattr(ACADynamicSessionsCodeExecutor, name)
    assert inspect.iscoroutinefunction(method)
    assert list(inspect.signature(method).parameters)[1:] == COROUTINES[name]


@pytest.mark.parametrize("name", PROPERTIES)
def test_each_property_is_one(name: str) -> None:
    assert isinstance(getattr(ACADynamicSessionsCodeExecutor, name), property)


def test_the_constants_are_the_documents() -> None:
    template = "You have access to the following user defined functions.\n\n$functions"
    assert template == ACADynamicSessionsCodeExecutor.FUNCTION_PROMPT_TEMPLATE
    assert ACADynamicSessionsCodeExecutor.SUPPORTED_LANGUAGES == ["python"]
    prompt = inspect.signature(ACADynamicSessionsCodeExecutor.format_functions_for_prompt).parameters
    assert prompt["prompt_template"].default == template


def test_the_properties_say_what_was_given(tmp_path: Path) -> None:
    executor = make(timeout=7, work_dir=str(tmp_path / "new"), functions=[add, times], functions_module="tools")
    assert (executor.timeout, executor.functions_module) == (7, "tools")
    assert executor.functions == ["add", "times"]
    assert executor.work_dir == tmp_path / "new"
    assert executor.work_dir.is_dir()


def test_the_timeout_is_60_seconds_by_default() -> None:
    assert make().timeout == 60
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        make(timeout=0)


def test_without_a_working_directory_it_is_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for executor in (make(), make(work_dir=None)):
        assert executor.work_dir.absolute() == tmp_path


def test_there_are_no_functions_by_default() -> None:
    assert make().functions == []
    assert make().functions_module == "functions"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def times(a: int, b: int) -> int:
    return a * b


def test_functions_are_formatted_as_stubs_with_two_newlines_between_each() -> None:
    executor = make(functions=[add, times])
    first = 'def add(a: int, b: int) -> int:\n    """Add two numbers."""\n    ...'
    stubs = f"{first}\n\ndef times(a: int, b: int) -> int:\n    ..."
    said = "You have access to the following user defined functions.\n\n"
    assert executor.format_functions_for_prompt() == said + stubs
    assert executor.format_functions_for_prompt("Use $functions now") == f"Use {stubs} now"


class Provider:
    """No more than the document asks of a credential."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, claims: Any = None, tenant_id: Any = None, **kwargs: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken(self.host.info.token or "", int(time.time()) + 3600)


async def test_a_credential_is_an_object_with_get_token(hosts: Any, tmp_path: Path) -> None:
    provider = Provider(hosts["server"])
    async with ACADynamicSessionsCodeExecutor(endpoint_of(hosts["server"]), provider, work_dir=tmp_path) as executor:
        assert (await executor.execute_code_blocks(python("print(1)"), Cancellation())).output == "1\n"
    assert provider.scopes == ["https://dynamicsessions.io/.default"]
    assert "get_token" in vars(jupyter_exec_ext.TokenProvider)


async def test_code_is_executed_incrementally_as_in_a_notebook(executor: ACADynamicSessionsCodeExecutor) -> None:
    await executor.execute_code_blocks(python("x = 1"), Cancellation())
    assert (await executor.execute_code_blocks(python("x + 1"), Cancellation())).output == "2"


async def test_blocks_run_serially_and_in_order(executor: ACADynamicSessionsCodeExecutor) -> None:
    result = await executor.execute_code_blocks(python("print(1)", "print(2)", "print(3)"), Cancellation())
    assert (result.exit_code, result.output) == (0, "1\n2\n3\n")


async def test_functions_are_run_in_order_once_at_the_beginning_of_each_session(hosts: Any, tmp_path: Path) -> None:
    host: Host = hosts["server"]
    first = FunctionWithRequirements.from_str("def start():\n    return 1")
    counting = FunctionWithRequirements.from_str("def double(n=[start()]):\n    n.append(1)\n    return len(n)")
    functions = [first, counting]
    async with ACADynamicSessionsCodeExecutor(
        endpoint_of(host), HostsToken(host), work_dir=tmp_path, functions=functions
    ) as executor:
        for expected in ("2", "3", "4"):
            assert (await executor.execute_code_blocks(python("double()"), Cancellation())).output == expected
        await executor.restart()
        assert (await executor.execute_code_blocks(python("double()"), Cancellation())).output == "2"


async def test_a_package_that_the_environment_lacks_is_an_error(executor: ACADynamicSessionsCodeExecutor) -> None:
    assert "no-such-package" not in await executor.get_available_packages(Cancellation())
    result = await executor.execute_code_blocks(python("import no_such_package"), Cancellation())
    assert result.exit_code == 1
    assert "ModuleNotFoundError: No module named 'no_such_package'" in result.output


async def test_the_supported_packages_are_a_set_of_names(executor: ACADynamicSessionsCodeExecutor) -> None:
    packages = await executor.get_available_packages(Cancellation())
    assert isinstance(packages, set)
    assert "ipykernel" in packages


async def test_only_python_is_supported(executor: ACADynamicSessionsCodeExecutor) -> None:
    result = await executor.execute_code_blocks([CodeBlock("echo 1", "bash")], Cancellation())
    assert result.exit_code == 1
    assert "unknown language bash" in result.output


@only_in_full
async def test_the_timeout_is_that_of_any_single_block(hosts: Any, tmp_path: Path) -> None:
    host: Host = hosts["server"]
    async with ACADynamicSessionsCodeExecutor(
        endpoint_of(host), HostsToken(host), timeout=2, work_dir=tmp_path
    ) as executor:
        pause = "import time\ntime.sleep(1.2)"
        assert (await executor.execute_code_blocks(python(pause, pause, pause), Cancellation())).exit_code == 0
        assert (await executor.execute_code_blocks(python("time.sleep(30)"), Cancellation())).exit_code == 124


async def test_a_token_cancels_the_operation(executor: ACADynamicSessionsCodeExecutor) -> None:
    async with beacon() as light:
        token = Cancellation()
        operation = asyncio.create_task(executor.execute_code_blocks(python(light.code), token))
        await light.lit()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await operation


async def test_files_are_uploaded_listed_and_downloaded(
    executor: ACADynamicSessionsCodeExecutor, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    await executor.upload_files([Path("a.txt"), "b.txt"], Cancellation())
    assert sorted(await executor.get_file_list(Cancellation())) == ["a.txt", "b.txt"]
    both = "print(open('a.txt').read() + open('b.txt').read())\nopen('c.txt', 'w').write('c') and None"
    assert (await executor.execute_code_blocks(python(both), Cancellation())).output == "ab\n"
    paths = await executor.download_files([Path("c.txt"), "a.txt"], Cancellation())
    assert paths == [str(tmp_path / "c.txt"), str(tmp_path / "a.txt")]
    assert (tmp_path / "c.txt").read_text() == "c"


async def test_restart_restarts_it(executor: ACADynamicSessionsCodeExecutor) -> None:
    await executor.execute_code_blocks(python("x = 1"), Cancellation())
    await executor.restart()
    result = await executor.execute_code_blocks(python("x"), Cancellation())
    assert "NameError" in result.output
