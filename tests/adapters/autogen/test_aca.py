"""The executor for ACA sessions as AutoGen's component, alone and inside its tools and agents, on a real server."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken, Component, ComponentBase, ComponentModel, is_component_instance
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.code_executor import FunctionWithRequirements as TheirFunction
from autogen_core.code_executor import with_requirements as their_with_requirements
from autogen_ext.code_executors import azure
from autogen_ext.tools.code_execution import CodeExecutionInput, PythonCodeExecutionTool
from azure.identity import DefaultAzureCredential
from pydantic import BaseModel, ValidationError

from jupyter_exec_ext import AccessToken, LocalJupyterServer
from jupyter_exec_ext.adapters.autogen import ACADynamicSessionsCodeExecutor, JupyterCodeResult, TokenProvider
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon

PROVIDER = "jupyter_exec_ext.adapters.autogen.ACADynamicSessionsCodeExecutor"


class Nothing(BaseModel):
    """There is nothing to store."""


class TokenFromEnvironment(ComponentBase[Nothing], Component[Nothing]):
    """A credential that is a component of AutoGen's: its dump has no secret."""

    component_type = "token_provider"
    component_config_schema = Nothing
    component_provider_override = "tests.adapters.autogen.test_aca.TokenFromEnvironment"

    def get_token(self, *scopes: str, claims: Any = None, tenant_id: Any = None, **kwargs: Any) -> AccessToken:
        return AccessToken(os.environ["POOL_TOKEN"], int(time.time()) + 3600)

    def _to_config(self) -> Nothing:
        return Nothing()

    @classmethod
    def _from_config(cls, config: Nothing) -> TokenFromEnvironment:
        return cls()


class PlainToken:
    def __init__(self, token: str) -> None:
        self.token = token

    def get_token(self, *scopes: str, claims: Any = None, tenant_id: Any = None, **kwargs: Any) -> AccessToken:
        return AccessToken(self.token, int(time.time()) + 3600)


@pytest.fixture
def endpoint(local_server: LocalJupyterServer, monkeypatch: pytest.MonkeyPatch) -> str:
    info = local_server.connection_info
    assert info.token is not None
    monkeypatch.setenv("POOL_TOKEN", info.token)
    return f"{info.url}exec/aca"


@pytest.fixture
async def executor(endpoint: str, tmp_path: Path) -> AsyncIterator[ACADynamicSessionsCodeExecutor]:
    async with ACADynamicSessionsCodeExecutor(endpoint, TokenFromEnvironment(), 30, tmp_path) as executor:
        yield executor


async def run(executor: CodeExecutor, *codes: str) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, "python") for code in codes], CancellationToken())


async def test_it_is_autogens_executor(executor: ACADynamicSessionsCodeExecutor) -> None:
    assert isinstance(executor, CodeExecutor)
    assert is_component_instance(executor)
    result = await run(executor, "print('hello')", SHOW_PICTURE)
    assert isinstance(result, CodeResult)
    assert isinstance(result, JupyterCodeResult)
    (path,) = result.output_files
    assert path.read_bytes() == PICTURE
    assert (result.exit_code, result.output) == (0, f"hello\nhere\nImage data saved to {path}")
    assert "get_token" in vars(TokenProvider)


async def test_class_has_all_members_of_autogens() -> None:
    own = azure.ACADynamicSessionsCodeExecutor
    for name in [name for name in vars(own) if not name.startswith("_")]:
        assert hasattr(ACADynamicSessionsCodeExecutor, name), name
        assert inspect.iscoroutinefunction(getattr(own, name)) == inspect.iscoroutinefunction(
            getattr(ACADynamicSessionsCodeExecutor, name)
        )
    parameters = list(inspect.signature(own).parameters)
    assert list(inspect.signature(ACADynamicSessionsCodeExecutor).parameters)[: len(parameters)] == parameters


async def test_dumped_and_loaded_it_works_and_the_dump_has_no_secret(
    executor: ACADynamicSessionsCodeExecutor, tmp_path: Path
) -> None:
    dump = executor.dump_component().model_dump_json()
    assert os.environ["POOL_TOKEN"] not in dump
    assert ComponentModel.model_validate_json(dump).provider == PROVIDER
    loaded = CodeExecutor.load_component(json.loads(dump))
    assert isinstance(loaded, ACADynamicSessionsCodeExecutor)
    assert (loaded.timeout, loaded.work_dir) == (30, tmp_path)
    assert loaded.dump_component() == executor.dump_component()
    async with loaded:
        assert (await run(loaded, "print('loaded')")).output == "loaded\n"


async def test_a_tool_with_it_is_dumped_loaded_and_runs(executor: ACADynamicSessionsCodeExecutor) -> None:
    dump = PythonCodeExecutionTool(executor).dump_component()
    tool = PythonCodeExecutionTool.load_component(json.loads(dump.model_dump_json()))
    assert isinstance(tool, PythonCodeExecutionTool)
    result = await tool.run(CodeExecutionInput(code="print(6 * 7)"), CancellationToken())
    assert (result.success, result.output) == (True, "42\n")
    await tool._executor.stop()


def test_azures_default_credential_is_dumped_by_its_name(tmp_path: Path) -> None:
    executor = ACADynamicSessionsCodeExecutor(
        "https://r.dynamicsessions.io/p", DefaultAzureCredential(), work_dir=tmp_path
    )
    dump = executor.dump_component()
    assert dump.config["credential"] == "DefaultAzureCredential"
    loaded = CodeExecutor.load_component(dump)
    assert isinstance(loaded, ACADynamicSessionsCodeExecutor)
    assert isinstance(loaded._credential, DefaultAzureCredential)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"credential": PlainToken("a-secret")}, "a PlainToken cannot be dumped, since it may hold a secret; use"),
        ({"allowed_hosts": ["evil.example"]}, "allowed_hosts, scope, verify cannot be dumped"),
        ({"functions": [len]}, "functions"),
    ],
)
def test_undumpable_executor_raises_with_the_remedy(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    if "functions" in options:
        options = {"functions": [TheirFunction.from_str("def f(): pass")]}
    options = {"credential": TokenFromEnvironment(), "work_dir": tmp_path, **options}
    executor = ACADynamicSessionsCodeExecutor("https://r.dynamicsessions.io/p", **options)
    with pytest.raises(ValueError, match=said) as raised:
        executor.dump_component()
    assert "a-secret" not in str(raised.value)


@pytest.mark.parametrize("extra", [{"token": "a-secret"}, {"allowed_hosts": ["evil.example"]}, {"verify": False}])
def test_a_config_holds_no_secret_and_sends_tokens_nowhere_else(extra: dict[str, Any], tmp_path: Path) -> None:
    config = {
        "pool_management_endpoint": "https://evil.example/",
        "credential": TokenFromEnvironment().dump_component().model_dump(),
        "api_version": "2025-10-02-preview",
        "output_dir": str(tmp_path),
    }
    with pytest.raises(ValidationError) as raised:
        CodeExecutor.load_component({"provider": PROVIDER, "config": {**config, **extra}})
    assert "a-secret" not in str(raised.value)


async def test_a_cancelled_token_stops_the_code(executor: ACADynamicSessionsCodeExecutor) -> None:
    async with beacon() as light:
        token = CancellationToken()
        running = asyncio.create_task(executor.execute_code_blocks([CodeBlock(light.code, "python")], token))
        await light.lit()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await light.out()
    assert "Lost" in (await run(executor, "1")).output


@their_with_requirements(python_packages=["ipykernel"], global_imports=["math"])
def area(radius: float) -> float:
    """Return the area of a circle."""
    return math.pi * radius**2  # type: ignore[name-defined,no-any-return]  # noqa: F821


async def test_autogens_own_functions_are_taken(endpoint: str, tmp_path: Path) -> None:
    text = TheirFunction.from_str("def twice(n: int) -> int:\n    return 2 * n")
    async with ACADynamicSessionsCodeExecutor(
        endpoint, TokenFromEnvironment(), work_dir=tmp_path, functions=[area, text], functions_module="tools"
    ) as executor:
        assert (
            await run(executor, "from tools import twice as t\nprint(round(area(1), 2), t(2))")
        ).output == "3.14 4\n"
        assert executor.functions == ["area", "twice"]


def approving(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="it is ours")


async def test_a_code_executor_agent(executor: ACADynamicSessionsCodeExecutor) -> None:
    agent = CodeExecutorAgent("executor", executor, approval_func=approving)
    text = "Here:\n```python\nprint('Hello world')\n```"
    response = await agent.on_messages([TextMessage(content=text, source="user")], CancellationToken())
    assert isinstance(response.chat_message, TextMessage)
    assert response.chat_message.content == "Hello world\n"
