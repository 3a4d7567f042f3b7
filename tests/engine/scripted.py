"""A kernel host in memory whose kernels do what their code says, over real ZeroMQ sockets.

The code of an execution is one word: ``ok``, ``error``, ``wait`` (until it is interrupted), ``stubborn`` (whatever
happens), ``die``. Everything else is as with a process: messages arrive later, an exit is noticed later.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import zmq

from jupyter_exec_ext.engine.ports import KernelExit
from jupyter_exec_ext.models import KernelSpecInfo
from jupyter_exec_ext.wire.kernel import FrameCodec

KEY = b"key"
_NUMBERS = itertools.count()


class ScriptedProcess:
    """One life of a kernel."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], directory: str, ran: list[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ran = ran
        self._codec = FrameCodec(KEY, "hmac-sha256", "kernel")
        name = f"{directory}/k{next(_NUMBERS)}"
        self.info: dict[str, Any] = {"transport": "ipc", "ip": name, "key": KEY}
        self._sockets = {}
        for port, (channel, kind) in enumerate(
            {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB}.items()
        ):
            socket = context.socket(kind)
            socket.linger = 0
            socket.bind(f"ipc://{name}-{port}")
            self.info[f"{channel}_port"] = port
            self._sockets[channel] = socket
        for channel in ("shell", "control"):
            self._loop.add_reader(self._sockets[channel].FD, self._drain, channel)
            self._loop.call_soon(self._drain, channel)
        self._queue: deque[tuple[bytes, dict[str, Any], str]] = deque()
        self._running: tuple[bytes, dict[str, Any], str] | None = None
        self._count = 0
        self.alive = True
        self.on_exit: Callable[[KernelExit], None] | None = None

    def _drain(self, channel: str) -> None:
        while self.alive:
            try:
                identity, *frames = self._sockets[channel].recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            header, content = json.loads(frames[2]), json.loads(frames[5])
            if header["msg_type"] == "kernel_info_request":
                self._status(header, "busy")
                self._send(channel, identity, "kernel_info_reply", header, status="ok")
                self._status(header, "idle")
            elif header["msg_type"] == "execute_request":
                self._queue.append((identity, header, content["code"]))
                self._next()

    def _send(self, channel: str, identity: bytes, msg_type: str, parent: dict[str, Any], **content: Any) -> None:
        _, frames = self._codec.encode(msg_type, content)
        frames[3] = json.dumps(parent).encode()
        self._sockets[channel].send_multipart([identity, frames[0], self._codec._sign(frames[2:]), *frames[2:]])
        if channel != "iopub":
            self._loop.call_soon(self._drain, channel)

    def _status(self, parent: dict[str, Any], state: str) -> None:
        self._send("iopub", b"", "status", parent, execution_state=state)

    def _next(self) -> None:
        if self._running is not None or not self._queue or not self.alive:
            return
        self._running = self._queue.popleft()
        _, header, code = self._running
        self._ran.append(code)
        self._count += 1
        self._status(header, "busy")
        self._send("iopub", b"", "execute_input", header, execution_count=self._count, code=code)
        self._send("iopub", b"", "stream", header, name="stdout", text=f"{code}\n")
        word = code.partition(" ")[0]
        if word == "die":
            self._loop.call_soon(self.end, KernelExit(exit_code=1))
        elif word in ("ok", "error"):
            self._loop.call_later(0.001, self._finish, word)

    def _finish(self, status: str) -> None:
        if not self.alive or self._running is None:
            return
        identity, header, _ = self._running
        self._running = None
        if status == "error":
            self._send("iopub", b"", "error", header, ename="Error", evalue="as the code says", traceback=[])
        self._send("shell", identity, "execute_reply", header, status=status, execution_count=self._count)
        self._status(header, "idle")
        self._next()

    def interrupt(self) -> None:
        if self._running is not None and self._running[2].startswith("wait"):
            self._loop.call_soon(self._finish, "error")

    def end(self, exit_: KernelExit) -> None:
        if not self.alive:
            return
        self.alive = False
        for channel, socket in self._sockets.items():
            if channel in ("shell", "control"):
                self._loop.remove_reader(socket.FD)
            socket.close()
        if self.on_exit is not None:
            self._loop.call_soon(self._tell, exit_)

    def _tell(self, exit_: KernelExit) -> None:
        if self.on_exit is not None:
            callback, self.on_exit = self.on_exit, None
            callback(exit_)


class ScriptedKernel:
    """A kernel of a `ScriptedHost`."""

    pid = None
    being_shut_down = False

    def __init__(self, host: ScriptedHost) -> None:
        self.kernel_id = f"kernel-{next(_NUMBERS)}"
        self._host = host
        self.process = host.new_process()

    @property
    def present(self) -> bool:
        return self.kernel_id in self._host.kernels

    async def alive(self) -> bool:
        return self.process.alive

    def connection_info(self) -> Mapping[str, Any]:
        return self.process.info

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        process = self.process
        process.on_exit = on_exit
        if not process.alive:
            asyncio.get_running_loop().call_soon(process._tell, KernelExit(exit_code=1))

        def unwatch() -> None:
            process.on_exit = None

        return unwatch

    async def interrupt(self) -> None:
        self.process.interrupt()

    async def kill(self) -> None:
        self.process.end(KernelExit(signal="SIGKILL"))
        await asyncio.sleep(0)

    async def restart(self, *, now: bool) -> None:
        self.process.end(KernelExit(signal="SIGKILL"))
        await asyncio.sleep(0.001)
        self.process = self._host.new_process()

    async def shutdown(self, *, now: bool) -> None:
        self.process.end(KernelExit(exit_code=0))
        await asyncio.sleep(0.001)
        self._host.kernels.pop(self.kernel_id, None)

    def touch(self) -> None:
        pass

    def take_over_watch(self) -> None:
        pass

    def note_state(self, state: str) -> None:
        pass

    async def settled(self) -> None:
        pass


class ScriptedHost:
    """Starts scripted kernels; `ran` is every code that any of them began, in order."""

    default_kernel_name = "scripted"

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.context: zmq.Context[zmq.Socket[bytes]] | None = None
        self.kernels: dict[str, ScriptedKernel] = {}
        self.ran: list[str] = []

    def new_process(self) -> ScriptedProcess:
        assert self.context is not None
        return ScriptedProcess(self.context, self._directory, self.ran)

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        return [await self.find("scripted")]

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        return KernelSpecInfo(kernel_name, "Scripted", "scripted")

    @contextmanager
    def reserve(self, kernel_id: str) -> Iterator[None]:
        yield

    async def start(self, kernel_name: str, env: Mapping[str, str], cwd: str | None = None) -> ScriptedKernel:
        await asyncio.sleep(0.001)
        kernel = ScriptedKernel(self)
        self.kernels[kernel.kernel_id] = kernel
        return kernel
