"""Table of contenders: the name of each in the report, its script, and the server that it runs on."""

from __future__ import annotations

from dataclasses import dataclass

from .servers import GATEWAY, MCP, NBMODEL, POST, Place, Server, ours

OURS = "ours"  # the worker that runs in this Python
HERE = {OURS, "direct", "post"}


@dataclass(frozen=True)
class Contender:
    """One contender.

    Parameters
    ----------
    label : str
        In the report, and in the goals.
    worker : str
        The module of `benchmarks.contenders`; if it is not for this Python, the environment has the same name, or the
        one in ``peer``.
    kind : str
        What the module calls it.
    place : Place, optional
        The server that it is on.
    by_address : bool
        Whether it takes host and port in the place of a URL.
    peer : str, optional
        Its environment.
    """

    label: str
    worker: str
    kind: str
    place: Place | None = None
    by_address: bool = False
    peer: str | None = None

    @property
    def environment(self) -> str | None:
        """The environment that its worker needs; None for this one."""
        return None if self.worker in HERE else self.peer or self.worker

    @property
    def environments(self) -> set[str]:
        """All environments that it needs."""
        return {name for name in (self.environment, self.place and self.place.peer) if name}

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's."""
        return bool(self.environments)

    def options(self, server: Server | None) -> dict[str, object]:
        """Return what its kind is made with."""
        if server is None:
            return {}
        if self.by_address:
            return {"host": "127.0.0.1", "port": server.port, "token": server.token}
        return {"url": server.url, **({} if self.worker == "post" else {"token": server.token})}


DIRECT = Contender("jupyter_client, blocking loop", "direct", "blocking")
DIRECT_ASYNC = Contender("jupyter_client, asynchronous client", "direct", "async")
AUTOGEN = Contender("AutoGen 0.2 on a stock Kernel Gateway", "autogen02", "JupyterCodeExecutor", GATEWAY, True)
AUTOGEN_EXT = Contender("autogen-ext (nbclient)", "autogen07", "JupyterCodeExecutor")
WEBSOCKET = Contender(
    "stock Kernel Gateway, WebSocket (aiohttp)", "gateway_websocket", "websocket", GATEWAY, peer="kernel_gateway"
)
NBMODEL_ENDPOINT = Contender("jupyter-server-nbmodel", "nbmodel", "nbmodel", NBMODEL)
MCP_TOOL = Contender("jupyter-mcp-server execute_code", "mcp", "execute_code", MCP)
SMOLAGENTS = Contender("smolagents LocalPythonExecutor (no kernel)", "smolagents126", "LocalPythonExecutor")
POST_AIOHTTP = Contender("trivial Tornado POST (aiohttp)", "post", "aiohttp", POST)
POST_REQUESTS = Contender("trivial Tornado POST (requests)", "post", "requests", POST)
PEERS = (AUTOGEN, AUTOGEN_EXT, WEBSOCKET, NBMODEL_ENDPOINT, MCP_TOOL)


def of_ours(kind: str, kernels: str = "plain", *options: str, pool: bool = False) -> Contender:
    """Return one of our clients on a server with such kernels, its label made from both."""
    label = f"{kind}: {kernels}{' + pool' if pool else ''}"
    return Contender(label, OURS, kind, ours(kernels, *options, pool=pool), kind == "JupyterCodeExecutor")


CLIENT, CLIENT_RUN, ASYNC_CLIENT = "ExecClient", "ExecClient.run", "AsyncExecClient"
MCP_ENDPOINT = "exec/mcp"
EXECUTOR = "JupyterCodeExecutor"
