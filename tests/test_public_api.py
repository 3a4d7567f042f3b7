"""The names that users import, exactly."""

from __future__ import annotations

import importlib
import inspect

import pytest

import jupyter_exec_ext
from jupyter_exec_ext.errors import ClientError, ExecError

PUBLIC = {
    "jupyter_exec_ext": {
        *("AsyncExecSession", "AsyncExecutionHandle", "ExecSession", "ExecutionHandle"),
        *("ErrorInfo", "Execution", "ExecutionState", "FileInfo", "ImageContent", "OutputEvent", "Session", "errors"),
        "ACAClient",
        "AccessToken",
        "AsyncACAClient",
        "TokenProvider",
        "CODE_WRITER_SYSTEM_MESSAGE",
        "ACADynamicSessionsCodeExecutor",
        "Alias",
        "CodeResult",
        "FunctionWithRequirements",
        "FunctionWithRequirementsStr",
        "IPythonCodeResult",
        "ImportFromModule",
        "MarkdownCodeExtractor",
        "AsyncExecClient",
        "BinderServer",
        "CodeBlock",
        "EmbeddedIPythonCodeExecutor",
        "DockerJupyterServer",
        "ExecClient",
        "JupyterCodeExecutor",
        "JupyterConnectable",
        "JupyterConnectionInfo",
        "JupyterHubServer",
        "LocalJupyterServer",
        "__version__",
        "with_requirements",
    },
    "jupyter_exec_ext.client": {
        "ACAClient",
        "AccessToken",
        "AsyncACAClient",
        "AsyncTokenProvider",
        "TokenProvider",
        "AsyncExecClient",
        "AsyncExecSession",
        "AsyncExecutionHandle",
        "ExecClient",
        "ExecSession",
        "ExecutionHandle",
        "JupyterConnectable",
        "JupyterConnectionInfo",
    },
    "jupyter_exec_ext.executors": {
        "CODE_WRITER_SYSTEM_MESSAGE",
        "ACADynamicSessionsCodeExecutor",
        "Alias",
        "BinderServer",
        "CodeBlock",
        "CodeResult",
        "EmbeddedIPythonCodeExecutor",
        "FunctionWithRequirements",
        "FunctionWithRequirementsStr",
        "DockerJupyterServer",
        "IPythonCodeResult",
        "ImportFromModule",
        "JupyterCodeExecutor",
        "JupyterConnectable",
        "JupyterConnectionInfo",
        "JupyterHubServer",
        "LaunchProgress",
        "LocalJupyterServer",
        "MarkdownCodeExtractor",
        "with_requirements",
    },
}


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_exact_and_every_name_is_there(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) == PUBLIC[name]
    for public in module.__all__:
        assert getattr(module, public) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        jupyter_exec_ext.NoSuchName  # noqa: B018
    assert set(dir(jupyter_exec_ext)) == PUBLIC["jupyter_exec_ext"]


def test_the_same_name_is_the_same_thing_everywhere() -> None:
    for names in PUBLIC.values():
        for public in names - {"__version__"}:
            homes = [home for home, there in PUBLIC.items() if public in there]
            assert len({id(getattr(importlib.import_module(home), public)) for home in homes}) == 1, public


# AutoGen 0.2's signatures, by parameter name and default; what we add comes after them or is keyword-only.
AUTOGEN = {
    "JupyterConnectionInfo": ["host", "use_https", "port", "token"],
    "CodeBlock": ["code", "language"],
    "DockerJupyterServer": [
        *("custom_image_name", "container_name", "auto_remove", "stop_container", "docker_env", "token"),
    ],
    "JupyterCodeExecutor": ["jupyter_server", "kernel_name", "timeout", "output_dir"],
    "EmbeddedIPythonCodeExecutor": ["timeout", "kernel_name", "output_dir"],
    "LocalJupyterServer": ["ip", "port", "token", "log_file", "log_level", "log_max_bytes", "log_backup_count"],
}
AUTOGEN_MEMBERS = {
    "DockerJupyterServer": [
        *("DEFAULT_DOCKERFILE", "GenerateToken", "stop", "connection_info", "get_client", "__enter__", "__exit__"),
    ],
    "JupyterCodeExecutor": ["code_extractor", "execute_code_blocks", "restart", "stop", "__enter__", "__exit__"],
    "EmbeddedIPythonCodeExecutor": [
        "code_extractor",
        "execute_code_blocks",
        "restart",
        "stop",
        "__enter__",
        "__exit__",
    ],
    "LocalJupyterServer": ["GenerateToken", "stop", "connection_info", "get_client", "__enter__", "__exit__"],
    "JupyterConnectable": ["connection_info"],
}


@pytest.mark.parametrize("name", AUTOGEN)
def test_autogens_parameters_come_first_in_autogens_order(name: str) -> None:
    parameters = list(inspect.signature(getattr(jupyter_exec_ext, name)).parameters.values())
    assert [parameter.name for parameter in parameters][: len(AUTOGEN[name])] == AUTOGEN[name]
    for added in parameters[len(AUTOGEN[name]) :]:
        assert added.kind is inspect.Parameter.VAR_KEYWORD or added.default is not inspect.Parameter.empty


def test_autogens_defaults_are_kept() -> None:
    executor = inspect.signature(jupyter_exec_ext.JupyterCodeExecutor).parameters
    assert (executor["kernel_name"].default, executor["timeout"].default) == ("python3", 60)
    assert str(executor["output_dir"].default) == "."
    server = inspect.signature(jupyter_exec_ext.LocalJupyterServer).parameters
    defaults = {name: parameter.default for name, parameter in server.items() if name != "token"}
    assert defaults == {
        "ip": "127.0.0.1",
        "port": None,
        "log_file": "jupyter_gateway.log",
        "log_level": "INFO",
        "log_max_bytes": 1048576,
        "log_backup_count": 3,
        "startup_timeout_seconds": 60.0,
        "pool_size": None,
    }


def test_a_server_in_a_container_has_autogens_defaults() -> None:
    parameters = inspect.signature(jupyter_exec_ext.DockerJupyterServer).parameters
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values())
    assert parameters["custom_image_name"].default is parameters["container_name"].default is None
    assert parameters["auto_remove"].default is parameters["stop_container"].default is True


@pytest.mark.parametrize("name", AUTOGEN_MEMBERS)
def test_autogens_members_are_there(name: str) -> None:
    for member in AUTOGEN_MEMBERS[name]:
        assert hasattr(getattr(jupyter_exec_ext, name), member), member


CLIENT_MODULES = {
    "client": ["ExecClient"],
    "session": ["ExecSession", "ExecSessionBase"],
    "standard_session": ["StandardExecSession"],
    "execution_handle": ["ExecutionHandle"],
    "tokens": ["ExecTokens", "ExecApprovals"],
}


@pytest.mark.parametrize("module", CLIENT_MODULES)
def test_the_two_clients_have_the_same_calls(module: str) -> None:
    sync, aio = (importlib.import_module(f"jupyter_exec_ext.client.{kind}.{module}") for kind in ("sync", "aio"))
    for name in CLIENT_MODULES[module]:
        ours, theirs = getattr(sync, name), getattr(aio, f"Async{name}")
        calls = {n for n in vars(ours) if not n.startswith("_")}
        assert calls == {n for n in vars(theirs) if not n.startswith("_")}
        for call in calls:
            if callable(getattr(ours, call)):
                one, other = (inspect.signature(getattr(cls, call)).parameters for cls in (ours, theirs))
                assert list(one) == list(other), call


def test_the_two_clients_of_session_pools_have_the_same_calls() -> None:
    from jupyter_exec_ext.aca.client.aio.pool_client import AsyncACAClient
    from jupyter_exec_ext.aca.client.sync.pool_client import ACAClient

    ours, theirs = ACAClient, AsyncACAClient
    calls = {n for n in vars(ours) if not n.startswith("_")} - {"close"} | {"__init__"}
    assert calls == {n for n in vars(theirs) if not n.startswith("_")} - {"aclose"} | {"__init__"}
    for call in calls:
        one, other = (inspect.signature(getattr(cls, call)).parameters for cls in (ours, theirs))
        assert list(one) == list(other), call


def test_every_error_has_a_code_of_its_own_and_a_status() -> None:
    codes = ExecError.codes()
    assert len(codes) == len(set(codes.values()))
    for code, error in codes.items():
        assert ExecError.for_code(code) is error
        assert error.__doc__
        assert (error.status == 0) is issubclass(error, ClientError)
        assert error.status == 0 or 400 <= error.status < 600


def test_a_code_cannot_be_taken_twice() -> None:
    with pytest.raises(TypeError, match="session_not_found"):
        type("Copy", (ExecError,), {"code": "session_not_found"})
