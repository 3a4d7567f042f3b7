"""The executor for Azure Container Apps sessions, on a Jupyter server of this machine that answers as a session pool.

pip install jupyter-exec-ext

On Azure, the endpoint is your pool's and the credential `azure.identity.DefaultAzureCredential()`.
"""

import asyncio
import tempfile
import time
from typing import Any

from jupyter_exec_ext import ACADynamicSessionsCodeExecutor, AccessToken, CodeBlock, LocalJupyterServer


class ServersToken:
    """A credential that gives a Jupyter server's token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return the token."""
        return AccessToken(self._token, time.time() + 3600)


def squares(count: int) -> list[int]:
    """Return the first squares."""
    return [n * n for n in range(1, count + 1)]


CODE = """\
from functions import squares
print(f"The 20 numbers add up to {sum(squares(20))}.")"""


async def main() -> None:
    """Run code that calls a function of ours."""
    with tempfile.TemporaryDirectory() as work, LocalJupyterServer(log_file=f"{work}/gateway.log") as server:
        info = server.connection_info
        assert info.token is not None
        async with ACADynamicSessionsCodeExecutor(
            f"{info.url}exec/aca", ServersToken(info.token), work_dir=work, functions=[squares]
        ) as executor:
            result = await executor.execute_code_blocks([CodeBlock(CODE, "python")])
            print(result.output, end="")


if __name__ == "__main__":
    asyncio.run(main())
