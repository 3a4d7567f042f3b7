"""What one warm execution makes a server do, over HTTP, with a kernel that answers at once.

    python -m tests.hot_path              the figures, as JSON
    python -m tests.hot_path --functions  also which functions were called how often

The gateway is the real one, with its store on disk; the client and the kernel are in threads of their own, which are
not counted. How often the event loop wakes up for what a kernel sends depends on the moment, so many runs are counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import zmq
from traitlets.config import Config

from jupyter_exec_ext import gateway
from jupyter_exec_ext.cli.gateway_app import ExecGatewayApp
from jupyter_exec_ext.engine.ports import Kernel, KernelExit
from jupyter_exec_ext.errors import KernelNotFound
from jupyter_exec_ext.models import KernelSpecInfo
from jupyter_exec_ext.store import writer
from jupyter_exec_ext.wire.kernel import FrameCodec

from .counting import Work, WorkCounter, ignore_this_thread

TOKEN = "hot-path"  # of a server that lives for a moment
WARM_UP_RUNS = 20
COUNTED_RUNS = 60
_KEY = b"key"
_CHANNELS = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB}
_REQUEST = json.dumps({"code": "print(1)", "allow_input": False}).encode()


class InstantKernel:
    """Answers at once, from a thread: the end of a run is there before the server looks."""

    pid = None
    ours = True
    limits_itself = False
    waits_for_readers = False
    shared_directory = None
    files = None
    present = True
    being_shut_down = False

    def __init__(self, directory: Path) -> None:
        self.kernel_id = f"instant-{directory.name}"
        self.turn = asyncio.Lock()
        self._context = zmq.Context()
        self._sockets = {channel: self._context.socket(kind) for channel, kind in _CHANNELS.items()}
        self._info: dict[str, Any] = {"transport": "ipc", "ip": str(directory / "k"), "key": _KEY}
        for port, (channel, end) in enumerate(self._sockets.items()):
            end.bind(f"ipc://{directory / 'k'}-{port}")
            self._info[f"{channel}_port"] = port
        self._codec = FrameCodec(_KEY, "hmac-sha256", "kernel")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        ignore_this_thread()
        poller = zmq.Poller()
        for channel in ("shell", "control"):
            poller.register(self._sockets[channel], zmq.POLLIN)
        while True:
            for end, _ in poller.poll():
                identity, *frames = end.recv_multipart()
                self._answer(end, identity, json.loads(frames[2]))

    def _answer(self, end: zmq.Socket[bytes], identity: bytes, header: Mapping[str, Any]) -> None:
        kind = header["msg_type"].removesuffix("_request")
        content: list[tuple[str, dict[str, Any]]] = [("status", {"execution_state": "busy"})]
        if kind == "execute":
            content += [("execute_input", {"execution_count": 1, "code": "print(1)"})]
            content += [("stream", {"name": "stdout", "text": "1\n"})]
        content += [("status", {"execution_state": "idle"})]
        for msg_type, value in content:
            self._sockets["iopub"].send_multipart([b"topic", *self._framed(msg_type, value, header)])
        reply = {"status": "ok", "execution_count": 1}
        end.send_multipart([identity, *self._framed(f"{kind}_reply", reply, header)])

    def _framed(self, msg_type: str, content: Mapping[str, Any], parent: Mapping[str, Any]) -> list[bytes]:
        _, frames = self._codec.encode(msg_type, content)
        frames[3] = json.dumps(parent).encode()
        return [frames[0], self._codec._sign(frames[2:]), *frames[2:]]

    async def alive(self) -> bool:
        return True

    def connection_info(self) -> Mapping[str, Any]:
        return self._info

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        return lambda: None

    def touch(self) -> None:
        pass

    def take_over_sockets(self) -> None:
        pass

    def note_state(self, state: str) -> None:
        pass

    async def settled(self) -> None:
        pass

    interrupts_by_message = False

    async def interrupt(self) -> None:
        pass

    async def kill(self) -> None:
        pass

    async def shutdown(self, *, now: bool) -> None:
        pass


class InstantHost:
    """Starts such kernels."""

    default_kernel_name = "instant"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        return [await self.find("instant")]

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        return KernelSpecInfo(kernel_name, "Instant", "python")

    def version_of(self, kernel_name: str) -> str:
        return ""

    @contextmanager
    def reserve(self, kernel_id: str) -> Iterator[None]:
        yield

    keeps_aside = False

    def enlist(self, kernel: Kernel) -> None:
        raise AssertionError("none is kept aside")

    def when_full(self, make_room: Callable[[], Awaitable[None]]) -> None:
        pass

    def running(self, kernel_id: str) -> KernelSpecInfo:
        raise KernelNotFound("all of these kernels are sessions' own")

    async def attach(self, kernel_id: str) -> InstantKernel:
        raise KernelNotFound("all of these kernels are sessions' own")

    async def why_not_isolated(self, level: str) -> str | None:
        return "these kernels are not isolated"

    async def start(
        self,
        kernel_name: str,
        env: Mapping[str, str],
        cwd: str | None = None,
        isolate: str | None = None,
        *,
        aside: str | None = None,
    ) -> InstantKernel:
        return InstantKernel(Path(tempfile.mkdtemp(dir=self._directory)))


class _App(ExecGatewayApp):
    def init_signal(self) -> None:
        """Leave the signals as they are."""


def measure(directory: Path) -> list[Work]:
    """Return what each of many warm executions made a server do."""
    vars(gateway)["build_host"] = lambda *args, **options: InstantHost(directory)
    vars(writer)["_QUICK_SECONDS"] = 60.0  # where a sync is made is not to depend on this disk
    runs: list[Work] = []
    counter = WorkCounter()

    async def serve() -> None:
        config = Config()
        config.KernelGatewayApp.auth_token = TOKEN
        config.KernelGatewayApp.port = 0
        config.KernelGatewayApp.ip = "127.0.0.1"
        config.ExecStore.path = str(directory / "store")
        config.ExecEngine.work_root = str(directory / "work")
        config.Application.log_level = "ERROR"
        app = _App(config=config)
        app.initialize([])
        await asyncio.to_thread(drive, app.port)
        await app.personality.shutdown()

    def drive(port: int) -> None:
        ignore_this_thread()
        connection = socket.create_connection(("127.0.0.1", port))
        session = _post(connection, "sessions", b"{}")
        path = f"sessions/{session['id']}/executions"
        for number in range(WARM_UP_RUNS + COUNTED_RUNS):
            counter.work = Work()
            # Each waits for what the one before has left to do.
            run = _post(
                connection, path, _REQUEST, {"Prefer": "respond-async, wait=25", "Idempotency-Key": str(number)}
            )
            assert run["state"] == "ok" and run["stdout"] == "1\n", run
            _settled()
            if number >= WARM_UP_RUNS:
                runs.append(counter.work)
        connection.close()

    with counter.installed():
        asyncio.run(serve())
    return runs


def figures(runs: Sequence[Work]) -> dict[str, int]:
    """Return what an execution costs: of calls the fewest, of what costs more what is usual."""
    by_name = {name: [run.figures().get(name, 0) for run in runs] for name in runs[-1].figures()}
    return {
        name: min(counts) if name in ("calls", "own_calls") else int(statistics.median_low(counts))
        for name, counts in by_name.items()
    }


def _settled() -> None:
    """Wait until what follows an answer is done; there is nothing to be told by, so for much longer than it takes."""
    threading.Event().wait(0.1)


def _post(
    connection: socket.socket, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Send a request in one piece, as our clients do."""
    usual = {"Host": "127.0.0.1", "Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
    lines = [f"{name}: {value}" for name, value in {**usual, **(headers or {}), "Content-Length": len(body)}.items()]
    head = "\r\n".join([f"POST /exec/v1/{path} HTTP/1.1", *lines, "", ""])
    connection.sendall(head.encode() + body)
    answer = HTTPResponse(connection)
    answer.begin()
    return dict(json.loads(answer.read()))


def main() -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
            os.environ[name] = directory
        runs = measure(Path(directory))
    print(json.dumps(figures(runs)))
    if "--functions" in sys.argv:
        for function, count in min(runs, key=lambda work: work.calls).by_function.most_common(400):
            print(f"{count:6} {function}")
    sys.stdout.flush()
    os._exit(0)  # the kernel's thread waits for ever


if __name__ == "__main__":
    main()
