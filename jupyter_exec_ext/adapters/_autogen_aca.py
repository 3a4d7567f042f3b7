"""Executor for Azure Container Apps sessions as an AutoGen component, which can be dumped and loaded."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autogen_core import Component, ComponentLoader, ComponentModel, is_component_instance
from autogen_core.code_executor import CodeExecutor
from pydantic import BaseModel, ConfigDict

from ..aca.executor import aca_executor
from ..models.plain_text import Ansi
from ._autogen_results import JupyterCodeResult

if TYPE_CHECKING:
    from typing_extensions import Self

# It finds its secrets in its environment, so its name can be stored.
_DEFAULT: Literal["DefaultAzureCredential"] = "DefaultAzureCredential"
_HOSTS_OPTIONS = ("allowed_hosts", "scope", "verify")


class ACADynamicSessionsCodeExecutorConfig(BaseModel):
    """An `ACADynamicSessionsCodeExecutor` as data. It names a kind of credential, and never holds a secret."""

    # A secret written into a config is refused rather than ignored, and the error does not show it.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    pool_management_endpoint: str
    credential: Literal["DefaultAzureCredential"] | ComponentModel
    timeout: int = 60
    work_dir: str = "."
    suppress_result_output: bool = False
    session_id: str | None = None
    api_version: str
    output_dir: str
    save_files: bool = False
    max_text_chars: int | None = None
    ansi: Ansi = "remove"


class ACADynamicSessionsCodeExecutor(
    aca_executor.ACADynamicSessionsCodeExecutor, CodeExecutor, Component[ACADynamicSessionsCodeExecutorConfig]
):
    __doc__ = aca_executor.ACADynamicSessionsCodeExecutor.__doc__

    component_config_schema = ACADynamicSessionsCodeExecutorConfig
    # Otherwise dumps would name this private module.
    component_provider_override = "jupyter_exec_ext.adapters.autogen.ACADynamicSessionsCodeExecutor"
    component_description = "Runs code blocks in a session of an Azure Container Apps session pool."

    def _result(self, exit_code: int, output: str, output_files: list[str]) -> JupyterCodeResult:
        return JupyterCodeResult(exit_code, output, [Path(file) for file in output_files])

    def _to_config(self) -> ACADynamicSessionsCodeExecutorConfig:
        if self._functions:
            raise ValueError("an executor with functions cannot be dumped: whoever loads it could not see what they do")
        options, usual = self._client_options, inspect.signature(aca_executor.ACADynamicSessionsCodeExecutor).parameters
        # Otherwise the author of a config could choose the server that gets access tokens.
        if any(options[name] != usual[name].default for name in _HOSTS_OPTIONS):
            raise ValueError(f"an executor with its own {', '.join(_HOSTS_OPTIONS)} cannot be dumped")
        return self.component_config_schema(
            pool_management_endpoint=self._pool_management_endpoint,
            credential=_dumped(self._credential),
            timeout=self._timeout,
            work_dir=str(self._work_dir),
            suppress_result_output=self._suppress_result_output,
            session_id=self._named_session_id,
            api_version=options["api_version"],
            output_dir=str(self._output_dir),
            save_files=self._save_files,
            max_text_chars=self._text_options.max_text_chars,
            ansi=self._text_options.ansi,
        )

    @classmethod
    def _from_config(cls, config: ACADynamicSessionsCodeExecutorConfig) -> Self:
        return cls(credential=_loaded(config.credential), **config.model_dump(exclude={"credential"}))


def _dumped(credential: Any) -> Any:
    if is_component_instance(credential):
        return credential.dump_component()
    kind = type(credential)
    # A class of this name in another package may hold a secret.
    if kind.__name__ == _DEFAULT and kind.__module__.startswith("azure.identity."):
        return _DEFAULT
    raise ValueError(
        f"a {kind.__name__} cannot be dumped, since it may hold a secret; use azure.identity's {_DEFAULT}, or a"
        " credential that is a component of AutoGen's"
    )


def _loaded(dumped: Any) -> Any:
    if dumped == _DEFAULT:
        from azure.identity import DefaultAzureCredential  # an extra, which may be missing

        return DefaultAzureCredential()
    # Credentials have no class in common: the method `get_token` makes one.
    credential = ComponentLoader.load_component(dumped, expected=object)
    if not callable(getattr(credential, "get_token", None)):
        raise ValueError(f"{dumped.provider} is no credential: it has no get_token")
    return credential
