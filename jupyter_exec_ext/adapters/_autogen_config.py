"""Options and stored form of the AutoGen executor, which names the environment variable of the token."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Annotated, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from ..client.local_servers import TOKEN_VARIABLE
from ..client.server_connection import JupyterConnectionInfo
from ..executors.function_sources import AnyFunction
from ..executors.stateful_executor import OnStateLost
from ..models.plain_text import Ansi

# The author of a config chooses the server that gets the token, so only variables for such tokens can be named.
_ALLOWED_TOKEN_VARIABLE = r"JUPYTER_([A-Z0-9_]+_)?TOKEN"
TokenVariable = Annotated[str, Field(pattern=f"^{_ALLOWED_TOKEN_VARIABLE}$")]


def check_token_variable(name: str) -> str:
    """Return the name of an environment variable; raise `ValueError` if a config may not name it."""
    if not re.fullmatch(_ALLOWED_TOKEN_VARIABLE, name):
        # Without the value: a person who put the token itself here would find it in logs.
        raise ValueError(
            f"token_variable must name an environment variable, {TOKEN_VARIABLE} or JUPYTER_…_TOKEN; set that variable "
            "to the token"
        )
    return name


class AutoGenOptions(TypedDict, total=False):
    """Keyword options of `JupyterCodeExecutor`, where they are explained, that its class for Docker passes on."""

    token: str | None
    token_variable: str
    functions: Sequence[AnyFunction]
    functions_module: str
    packages: Sequence[str]
    session_id: str | None
    max_text_chars: int | None
    ansi: Ansi
    on_state_lost: OnStateLost
    like_autogen: bool


class JupyterCodeExecutorConfig(BaseModel):
    """A `JupyterCodeExecutor` as data. It names the environment variable that holds the token, never the token."""

    # A token written into a config is refused rather than ignored, and the error does not show it.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    kernel_name: str = "python3"
    timeout: int = 60
    output_dir: str | None = None
    packages: list[str] | None = None
    max_text_chars: int | None = None
    ansi: Ansi = "remove"
    on_state_lost: OnStateLost = "fail"
    like_autogen: bool = True
    jupyter_server: str | None = Field(None, description="The server's URL; without it, one is started when needed.")
    token_variable: TokenVariable | None = Field(None, description="Which environment variable holds the token.")
    verify: bool | str = True
    client_cert: str | tuple[str, str] | None = None


def server_of(config: JupyterCodeExecutorConfig) -> JupyterConnectionInfo | None:
    """Return a config's server with the token from its variable; raise `ValueError` if the variable is not set."""
    if config.jupyter_server is None:
        return None
    token = None
    if config.token_variable is not None:
        token = os.environ.get(config.token_variable, "").strip()
        if not token:
            raise ValueError(f"set the environment variable {config.token_variable} to the token of the Jupyter server")
    return JupyterConnectionInfo.from_url(
        config.jupyter_server, token, verify=config.verify, client_cert=config.client_cert
    )
