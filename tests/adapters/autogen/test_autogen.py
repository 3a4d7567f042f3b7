"""AutoGen's executors by name, alone and inside its agents with a scripted model, on a real server."""

from __future__ import annotations

import asyncio
import json
import runpy
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, AssistantAgent, CodeExecutorAgent
from autogen_agentchat.messages import TextMessage, ToolCallSummaryMessage
from autogen_core import CancellationToken, ComponentModel, FunctionCall, is_component_instance
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.code_executor import with_requirements as their_with_requirements
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool
from pydantic import ValidationError

from jupyter_exec_ext import AsyncExecClient, ExecClient, LocalJupyterServer, with_requirements
from jupyter_exec_ext.adapters.autogen import DockerJupyterCodeExecutor, JupyterCodeExecutor, JupyterCodeResult
from jupyter_exec_ext.errors import Unauthenticated
from jupyter_exec_ext.executors.cancellation import cancelled_by
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon

PROVIDER = "jupyter_exec_ext.adapters.autogen.JupyterCodeExecutor"
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


@pytest.fixture
async def executor(local_server: LocalJupyterServer, tmp_path: Path) -> AsyncIterator[DockerJupyterCodeExecutor]:
    made = DockerJupyterCodeExecutor(local_server, timeout=20, output_dir=tmp_path, like_autogen=False)
    async with made as executor:
        yield executor


def python(*codes: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python") for code in codes]


async def run(executor: CodeExecutor, *codes: str) -> CodeResult:
    return await executor.execute_code_blocks(python(*codes), CancellationToken())


def scripted(*codes: str) -> ReplayChatCompletionClient:
    """Return AutoGen's own scripted model, which calls the tool with one code after the other and then says 'done'."""
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    calls = [
        CreateResult(
            finish_reason="function_calls",
            content=[FunctionCall(id=str(i), name="CodeExecutor", arguments=json.dumps({"code": code}))],
            usage=usage,
            cached=False,
        )
        for i, code in enumerate(codes)
    ]
    can = ModelInfo(
        vision=False, function_calling=True, json_output=False, structured_output=False, family=ModelFamily.UNKNOWN
    )
    return ReplayChatCompletionClient([*calls, "done"], can)


async def test_state_is_kept_between_blocks_and_calls(executor: DockerJupyterCodeExecutor) -> None:
    assert isinstance(executor, CodeExecutor)
    assert await run(executor, "x = 3", "print(x)") == JupyterCodeResult(0, "3\n")
    assert await run(executor, "print(x + 1)") == JupyterCodeResult(0, "4\n")


async def test_blocks_after_a_failing_one_do_not_run_and_nothing_before_is_lost(
    executor: DockerJupyterCodeExecutor,
) -> None:
    result = await run(executor, "print('first')", SHOW_PICTURE + "1/0", "print('never')")
    assert isinstance(result, JupyterCodeResult)
    (file,) = result.output_files
    assert file.read_bytes() == PICTURE
    first, here, saved, *traceback = result.output.split("\n")
    assert (first, here, saved) == ("first", "here", f"Image data saved to {file}")
    assert traceback[-1] == "ZeroDivisionError: division by zero"
    assert result.exit_code == 1
    assert "never" not in result.output


async def test_html_is_a_file_and_languages_count(executor: DockerJupyterCodeExecutor, tmp_path: Path) -> None:
    result = await run(executor, "from IPython.display import HTML; HTML('<p>ä')")
    assert isinstance(result, JupyterCodeResult)
    assert [file.read_text("utf-8") for file in result.output_files] == ["<p>ä"]
    assert result.output_files[0].parent == tmp_path
    blocks = [CodeBlock("echo $((6*7))", "sh"), CodeBlock("print(1)", ""), CodeBlock("fn main() {}", "rust")]
    result = await executor.execute_code_blocks(blocks, CancellationToken())
    assert result.exit_code == 1
    assert result.output.startswith("42\n1\nNot run: ")


async def test_a_timeout_stops_the_code_and_is_a_result(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeExecutor(timeout=1, jupyter_server=local_server, like_autogen=False) as executor:
        await run(executor, "kept = 1")
        result = await run(executor, "while True: pass")
        assert result.exit_code == 1
        assert result.output.endswith("Timeout: its time limit of 1 s was reached; the session's variables were kept")
        assert (await run(executor, "print(kept)")).output == "1\n"


async def test_a_cancelled_token_stops_the_code_on_the_server(executor: DockerJupyterCodeExecutor) -> None:
    async with beacon() as light:
        token = CancellationToken()
        running = asyncio.create_task(executor.execute_code_blocks(python("x = 1", light.code, "x = 2"), token))
        await light.lit()
        threading.Thread(target=token.cancel).start()  # a token may be cancelled from anywhere
        with pytest.raises(asyncio.CancelledError):
            await running
        await light.out()
    assert (await run(executor, "print(x)")).output == "1\n"
    with pytest.raises(asyncio.CancelledError):
        await executor.execute_code_blocks(python("x = 3"), token)
    assert (await run(executor, "print(x)")).output == "1\n"


async def test_a_token_that_is_cancelled_in_another_thread_wakes_the_event_loop() -> None:
    token = CancellationToken()
    task = asyncio.create_task(cancelled_by(token, asyncio.Event().wait()))
    timer = threading.Timer(0.5, token.cancel)  # by then the loop has nothing to do
    timer.start()
    began = time.monotonic()
    await asyncio.wait({task}, timeout=20)
    timer.join()
    assert time.monotonic() - began < 10
    assert task.cancelled()


async def test_a_cancelled_task_stops_the_code_on_the_server(executor: DockerJupyterCodeExecutor) -> None:
    async with beacon() as light:
        running = asyncio.create_task(run(executor, light.code))
        await light.lit()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await light.out()


async def test_restart_begins_afresh_and_stop_leaves_nothing(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    executor = DockerJupyterCodeExecutor(local_server)
    assert executor.output_dir is None
    await run(executor, "x = 1")  # starts it, as AutoGen's tools do not
    chosen = executor.output_dir
    assert chosen is not None
    assert chosen.is_dir()
    await executor.restart()
    assert (await run(executor, "print('x' in globals())")).output == "False\n"
    result = await run(executor, SHOW_PICTURE, "from IPython.display import HTML; HTML('<p>')")
    assert isinstance(result, JupyterCodeResult)
    assert [(file.parent, file.suffix) for file in result.output_files] == [(chosen, ".png"), (chosen, ".html")]
    assert all(file.is_file() for file in result.output_files)
    await executor.close()
    await executor.stop()
    assert client.list_sessions() == []
    assert not chosen.exists()
    assert (await run(executor, "print('again')")).output == "again\n"
    await executor.stop()


async def test_without_a_server_it_has_one_of_its_own_and_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    executor = JupyterCodeExecutor("python3", 60, tmp_path / "new" / "output")
    async with executor:
        result = await run(executor, "import os; print(os.getpid())", SHOW_PICTURE)
        assert isinstance(result, JupyterCodeResult)
        assert result.output_files[0].parent == tmp_path / "new" / "output"
        assert executor._resources.running is not None
        own = executor._resources.running[0].connection_info
        assert own is not None
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(own.host, own.port)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []  # no log is left where one works


async def test_unknown_kernel_and_wrong_arguments_are_value_errors(local_server: LocalJupyterServer) -> None:
    with pytest.raises(ValueError, match="Kernel nothing is not installed"):
        await DockerJupyterCodeExecutor(local_server, "nothing").start()
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        JupyterCodeExecutor(timeout=0)
    with pytest.raises(ValueError, match="a token needs the server"):
        JupyterCodeExecutor(token="x")
    for wrong in (None, 42):
        with pytest.raises(ValueError, match="must be a JupyterConnectable"):
            DockerJupyterCodeExecutor(wrong)  # type: ignore[arg-type]


async def test_wrong_token_is_reported_and_not_printed(local_server: LocalJupyterServer) -> None:
    executor = DockerJupyterCodeExecutor(local_server, token="not-the-token")
    assert "not-the-token" not in repr(executor)
    with pytest.raises(Unauthenticated) as raised:
        await run(executor, "1")
    assert "not-the-token" not in str(raised.value)


async def test_dumped_and_loaded_it_works_and_the_dump_has_no_token(
    local_server: LocalJupyterServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = DockerJupyterCodeExecutor(
        local_server, timeout=9, output_dir=tmp_path, token_variable="JUPYTER_LAB_TOKEN"
    )
    assert is_component_instance(executor)
    assert local_server.token is not None
    dump = executor.dump_component().model_dump_json()
    assert local_server.token not in dump
    assert ComponentModel.model_validate_json(dump).provider == (
        "jupyter_exec_ext.adapters.autogen.DockerJupyterCodeExecutor"
    )

    with pytest.raises(ValueError, match="set the environment variable JUPYTER_LAB_TOKEN to the token"):
        CodeExecutor.load_component(json.loads(dump))
    monkeypatch.setenv("JUPYTER_LAB_TOKEN", local_server.token)
    loaded = CodeExecutor.load_component(json.loads(dump))
    assert isinstance(loaded, DockerJupyterCodeExecutor)
    assert (loaded.timeout, loaded.output_dir) == (9, tmp_path)
    assert loaded.dump_component() == executor.dump_component()
    async with loaded:
        assert (await run(loaded, "print('loaded')")).output == "loaded\n"


async def test_a_dump_without_a_server_and_inside_a_tool_and_an_agent(local_server: LocalJupyterServer) -> None:
    plain = JupyterCodeExecutor(timeout=7)
    loaded = CodeExecutor.load_component(plain.dump_component())
    assert isinstance(loaded, JupyterCodeExecutor)
    assert not isinstance(loaded, DockerJupyterCodeExecutor)
    assert loaded.timeout == 7
    with_packages = JupyterCodeExecutor(packages=["pandas==2.2"])
    assert CodeExecutor.load_component(with_packages.dump_component()).dump_component().config["packages"] == (
        ["pandas==2.2"]
    )
    tool = PythonCodeExecutionTool.load_component(PythonCodeExecutionTool(plain).dump_component())
    assert isinstance(tool, PythonCodeExecutionTool)
    open_server = DockerJupyterCodeExecutor("http://127.0.0.1:9/")  # without a token
    assert open_server.dump_component().config == {
        "kernel_name": "python3",
        "timeout": 60,
        "jupyter_server": "http://127.0.0.1:9/",
        "verify": True,
        "ansi": "remove",
        "like_autogen": True,
        "on_state_lost": "fail",
    }


def test_a_token_in_a_config_is_refused_and_not_shown() -> None:
    config = {"jupyter_server": "http://127.0.0.1:9/", "token": "a-secret"}
    with pytest.raises(ValidationError) as raised:
        CodeExecutor.load_component({"provider": PROVIDER, "config": config})
    assert "a-secret" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "MY_JUPYTER_TOKEN", "JUPYTER_TOKEN\n", "JUPYTERHUB_API_TOKEN"]
)
def test_a_config_cannot_have_any_secret_sent_to_its_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "a-secret")
    config = {"jupyter_server": "http://127.0.0.1:9/", "token_variable": name}
    with pytest.raises(ValidationError, match="token_variable"):
        CodeExecutor.load_component(
            {"provider": "jupyter_exec_ext.adapters.autogen.JupyterCodeExecutor", "config": config}
        )
    with pytest.raises(ValueError, match="JUPYTER_…_TOKEN") as raised:
        JupyterCodeExecutor(token_variable=name)
    assert name not in str(raised.value)  # it may be the token itself


async def test_given_session_is_used_left_open_and_not_dumped(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server) as own, await own.session() as opened:
        async with JupyterCodeExecutor(session=opened) as executor:
            await run(executor, "x = 7")
        with pytest.raises(ValueError, match="cannot be dumped"):
            executor.dump_component()
        assert (await opened.run("x")).to_text() == "7"


async def test_a_session_that_the_server_has_ended_is_replaced(
    executor: DockerJupyterCodeExecutor, client: ExecClient
) -> None:
    (session,) = client.list_sessions()
    client.get_session(session.id).close()
    result = await run(executor, "x = 1", "x")
    assert result.exit_code == 1
    assert "variables, imports and definitions are gone" in result.output
    assert (await run(executor, "print('x' in globals())")).output == "False\n"


@with_requirements(python_packages=["ipykernel>=6"], global_imports=["math"])
def area(radius: float) -> float:
    """Return the area of a circle."""
    return math.pi * radius**2  # type: ignore[name-defined,no-any-return]  # noqa: F821


SHOW = "from tools import area; print(round(area(1), 2))"


@pytest.fixture
async def with_functions(local_server: LocalJupyterServer) -> AsyncIterator[DockerJupyterCodeExecutor]:
    async with DockerJupyterCodeExecutor(local_server, functions=[area], functions_module="tools") as executor:
        yield executor


async def test_an_assistants_code_calls_functions(with_functions: DockerJupyterCodeExecutor) -> None:
    assert (with_functions.functions, with_functions.functions_module) == (["area"], "tools")
    assert "def area(radius: float) -> float:" in with_functions.format_functions_for_prompt()
    agent = AssistantAgent("assistant", scripted(SHOW), tools=[PythonCodeExecutionTool(with_functions)])
    result = await agent.run(task="measure")
    last = result.messages[-1]
    assert isinstance(last, ToolCallSummaryMessage)
    assert last.content == "3.14\n"


async def test_functions_are_in_every_fresh_kernel(
    with_functions: DockerJupyterCodeExecutor, client: ExecClient
) -> None:
    await with_functions.restart()
    assert (await run(with_functions, SHOW)).output == "3.14\n"
    await run(with_functions, "import os; os._exit(1)")
    assert (await run(with_functions, SHOW)).output == "3.14\n"
    (session,) = client.list_sessions()
    client.get_session(session.id).close()
    assert "variables, imports and definitions are gone" in (await run(with_functions, SHOW)).output
    assert (await run(with_functions, SHOW)).output == "3.14\n"
    (session,) = client.list_sessions()
    client.get_session(session.id).restart()  # somebody else, whom the executor does not see
    result = await run(with_functions, "area(1)")
    assert result.exit_code == 1
    assert "without the functions of the module tools" in result.output
    assert (await run(with_functions, SHOW)).output == "3.14\n"


async def test_functions_by_autogens_own_records_and_what_is_missing(local_server: LocalJupyterServer) -> None:
    theirs = their_with_requirements(python_packages=["no-such-package"])(area.func)
    executor = DockerJupyterCodeExecutor(local_server, functions=[theirs])
    with pytest.raises(ValueError, match="Packages unavailable in the session: no-such-package"):
        await executor.start()
    with pytest.raises(ValueError, match="with functions cannot be dumped"):
        executor.dump_component()


async def test_an_assistant_with_the_code_execution_tool(executor: DockerJupyterCodeExecutor) -> None:
    tool = PythonCodeExecutionTool(executor)
    model = scripted("x = 20", "print(x + 1)")
    agent = AssistantAgent("assistant", model, tools=[tool], max_tool_iterations=3)
    result = await agent.run(task="add one")
    last = result.messages[-1]
    assert isinstance(last, TextMessage)
    assert last.content == "done"
    results = [
        (each.content, each.is_error)
        for message in await agent.model_context.get_messages()
        if isinstance(message, FunctionExecutionResultMessage)
        for each in message.content
    ]
    assert results == [("", False), ("21\n", False)]


async def test_a_cancelled_assistant_stops_its_code(executor: DockerJupyterCodeExecutor) -> None:
    async with beacon() as light:
        agent = AssistantAgent("assistant", scripted(light.code), tools=[PythonCodeExecutionTool(executor)])
        token = CancellationToken()
        running = asyncio.create_task(agent.run(task="run long", cancellation_token=token))
        await light.lit()
        token.cancel()
        await light.out()
        # AutoGen 0.7.5: an assistant whose tool was cancelled waits for its result for ever, whatever tool it is.
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def approving(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved="secret" not in request.code, reason="as you like")


async def test_a_code_executor_agent(executor: DockerJupyterCodeExecutor) -> None:
    agent = CodeExecutorAgent("executor", executor, approval_func=approving)
    text = "Here:\n```python\nprint('Hello world')\n```\nand\n```sh\necho hi\n```"
    response = await agent.on_messages([TextMessage(content=text, source="user")], CancellationToken())
    assert isinstance(response.chat_message, TextMessage)
    assert response.chat_message.content == "Hello world\nhi\n"


async def test_a_cancelled_code_executor_agent_stops_its_code(executor: DockerJupyterCodeExecutor) -> None:
    async with beacon() as light:
        agent = CodeExecutorAgent("executor", executor, approval_func=approving)
        token = CancellationToken()
        message = TextMessage(content=f"```python\n{light.code}\n```", source="user")
        running = asyncio.create_task(agent.on_messages([message], token))
        await light.lit()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await light.out()


async def test_a_code_executor_agent_with_a_model(executor: DockerJupyterCodeExecutor) -> None:
    model = ReplayChatCompletionClient(["```python\nprint(6 * 7)\n```", "It is 42."])
    agent = CodeExecutorAgent("executor", executor, model_client=model, approval_func=approving)
    result = await agent.run(task="multiply")
    last = result.messages[-1]
    assert isinstance(last, TextMessage)
    assert last.content == "It is 42."


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "autogen_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == "The 20 numbers add up to 2870."
