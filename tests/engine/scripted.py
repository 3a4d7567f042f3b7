"""A kernel host in memory whose kernels do what their code says, and a record of what they did.

The first word of the code decides: ``ok`` and ``error`` end after a moment, ``wait`` when it is interrupted,
``stubborn`` never, ``die`` takes the kernel with it. Everything else is as with a process: messages arrive later, each
channel at its own pace; an exit is noticed later; a kernel that was just started takes its time; an interrupt that
comes before the code really runs is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import zmq

from jupyter_exec_ext.engine.ports import Kernel, KernelExit, KernelLaunch, KernelTraits, RoomMaker
from jupyter_exec_ext.errors import KernelNotFound
from jupyter_exec_ext.models import KernelSpecInfo
from jupyter_exec_ext.protocol.kernel_messages import FrameCodec
from jupyter_exec_ext.protocol.zmtp import LARGE_BYTES
from jupyter_exec_ext.system.marked_processes import MARK

from .simulation import TICK

KEY = b"key"
LATENCY_SECONDS = 0.02  # at most, of a message, an exit notice or a step of the store
DEAF_SECONDS = 0.005  # from saying that the code runs to running it
_CHANNELS = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB}


@dataclass
class Run:
    """What a kernel did with one piece of code, by the loop's clock."""

    code: str
    process: ScriptedProcess
    began: float
    over: float | None = None
    cut: bool = False  # by the end of its process

    def __str__(self) -> str:
        return f"{self.code!r} ran {self.began:.6f}-{self.over or 0:.6f} until {self.process.ended_at or 0:.6f}"


@dataclass(frozen=True)
class _Request:
    identity: bytes
    header: Mapping[str, Any]
    code: str


class ScriptedProcess:
    """One life of a kernel."""

    def __init__(self, host: ScriptedHost, session_id: str) -> None:
        assert host.context is not None
        self.session_id = session_id
        self.ended_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._codec = FrameCodec(KEY, "hmac-sha256", "kernel")
        name = f"process-{len(host.processes)}"
        self.info: dict[str, Any] = {"transport": "inproc", "ip": name, "key": KEY}
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        for port, (channel, kind) in enumerate(_CHANNELS.items()):
            socket = self._sockets[channel] = host.context.socket(kind)
            socket.bind(f"inproc://{name}:{port}")
            self.info[f"{channel}_port"] = port
        self._free_at = dict.fromkeys(_CHANNELS, 0.0)
        for channel in ("shell", "control"):
            self._loop.add_reader(self._sockets[channel].FD, self._drain, channel)
            self._loop.call_soon(self._drain, channel)
        self._queue: deque[_Request] = deque()
        self._request: _Request | None = None
        self._run: Run | None = None
        self._count = 0
        self._exit = KernelExit()
        self._on_exit: Callable[[KernelExit], None] | None = None

    @property
    def alive(self) -> bool:
        return self.ended_at is None

    # --- messages ---

    def _drain(self, channel: str) -> None:
        while self.alive:
            try:
                identity, *frames = self._sockets[channel].recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            request = _Request(identity, json.loads(frames[2]), json.loads(frames[5]).get("code", ""))
            if request.header["msg_type"] == "execute_request":
                self._host.check(
                    not self._queue and self._request is None, f"{request.code!r} was sent to a busy kernel"
                )
                self._queue.append(request)
                self._loop.call_later(self._host.delay(), self._begin)
            else:
                self._status(request, "busy")
                self._send(channel, request, "kernel_info_reply", status="ok")
                self._status(request, "idle")

    def _send(self, channel: str, request: _Request, msg_type: str, **content: Any) -> None:
        """Send a message that arrives later, but in the channel's order."""
        _, frames = self._codec.encode(msg_type, content)
        frames[3] = json.dumps(request.header).encode()
        signed = [request.identity, frames[0], self._codec._sign(frames[2:]), *frames[2:]]
        at = max(self._loop.time() + self._host.delay(), self._free_at[channel] + TICK)
        self._free_at[channel] = at
        self._loop.call_at(at, self._deliver, channel, signed)

    def _send_improper(self, channel: str, request: _Request, parent: Any, text: str) -> None:
        """Send a message that no kernel should, small or large."""
        _, frames = self._codec.encode("stream", {"name": "stdout", "text": text})
        frames[3] = json.dumps(parent).encode()
        signed = [request.identity, frames[0], self._codec._sign(frames[2:]), *frames[2:]]
        self._loop.call_at(self._free_at[channel], self._deliver, channel, signed)
        self._free_at[channel] += TICK

    def _deliver(self, channel: str, frames: list[bytes]) -> None:
        socket = self._sockets[channel]
        if socket.closed:
            return
        # Sending looks for new peers every now and then, by the processor's clock; this looks now.
        socket.get(zmq.EVENTS)
        socket.send_multipart(frames)
        if channel != "iopub":
            self._drain(channel)

    def _status(self, request: _Request, state: str) -> None:
        self._send("iopub", request, "status", execution_state=state)

    # --- code ---

    def _begin(self) -> None:
        if self._request is not None or not self._queue or not self.alive:
            return
        request = self._request = self._queue.popleft()
        self._count += 1
        self._run = self._host.note_run(request.code, self)
        self._status(request, "busy")
        self._send("iopub", request, "execute_input", execution_count=self._count, code=request.code)
        self._send("iopub", request, "stream", name="stdout", text=f"{request.code}\n")
        for channel, parent, text in self._host.improper_messages():
            self._send_improper(channel, request, parent, text)
        word = request.code.partition(" ")[0]
        if word == "die":
            self._loop.call_later(self._host.delay(), self.end, KernelExit(exit_code=1))
        elif word in ("ok", "error"):
            self._loop.call_later(self._host.delay(), self._finish, request, word)

    def _finish(self, request: _Request, status: str, name: str = "Error") -> None:
        if not self.alive or self._request is not request or self._run is None:
            return
        self._run.over = self._loop.time()
        self._request = self._run = None
        if status == "error":
            self._send("iopub", request, "error", ename=name, evalue="", traceback=[])
        self._send("shell", request, "execute_reply", status=status, execution_count=self._count)
        self._status(request, "idle")
        self._begin()

    def interrupt(self) -> None:
        if self._request is None or self._run is None or self._loop.time() < self._run.began + DEAF_SECONDS:
            return
        if self._request.code.startswith("wait"):
            self._finish(self._request, "error", "KeyboardInterrupt")

    def end(self, exit_: KernelExit) -> None:
        """End the process; who watches it hears of it later."""
        if not self.alive:
            return
        self._exit, self.ended_at = exit_, self._loop.time()
        if self._run is not None:
            self._run.over, self._run.cut = self.ended_at, True
        # The sockets stay, as addresses do; ZeroMQ would let a request to one without a peer block.
        for channel in ("shell", "control"):
            self._loop.remove_reader(self._sockets[channel].FD)
        self._loop.call_later(self._host.delay(), self._tell)

    def watch(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        self._on_exit = on_exit
        if not self.alive:
            self._loop.call_soon(self._tell)
        return self._unwatch

    def _unwatch(self) -> None:
        self._on_exit = None

    def _tell(self) -> None:
        on_exit, self._on_exit = self._on_exit, None
        if on_exit is not None:
            on_exit(self._exit)


class ScriptedKernel:
    """A kernel of a `ScriptedHost`."""

    pid = None
    traits = KernelTraits()

    def last_words(self) -> str:
        return ""

    def __init__(self, host: ScriptedHost, session_id: str) -> None:
        self._host = host
        self._session_id = session_id
        self.process = host.new_process(session_id)
        self.kernel_id = f"kernel-of-{session_id}-{len(host.processes)}"
        self.being_shut_down = False

    @property
    def present(self) -> bool:
        return self._host.kernels.get(self.kernel_id) is self

    @property
    def removal_reason(self) -> str:
        return "nobody else ends one of these kernels"

    async def alive(self) -> bool:
        return self.process.alive

    def take_connection(self) -> Mapping[str, Any]:
        return self.process.info

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        return self.process.watch(on_exit)

    async def interrupt(self) -> None:
        self.process.interrupt()
        await asyncio.sleep(self._host.delay())

    async def kill(self) -> None:
        self.process.end(KernelExit(signal="SIGKILL"))
        await asyncio.sleep(self._host.delay())

    async def restart(self, *, now: bool, launch: KernelLaunch | None = None) -> None:
        self.being_shut_down = True
        await asyncio.sleep(0 if now else self._host.delay())
        self.process.end(KernelExit(signal="SIGKILL") if now else KernelExit(exit_code=0))
        await asyncio.sleep(self._host.start_delay())
        self.process = self._host.new_process(self._session_id)
        self.being_shut_down = False

    async def shutdown(self, *, now: bool) -> None:
        self.being_shut_down = True
        await asyncio.sleep(0 if now else self._host.delay())
        self.process.end(KernelExit(signal="SIGKILL") if now else KernelExit(exit_code=0))
        await asyncio.sleep(self._host.delay())
        self._host.kernels.pop(self.kernel_id, None)

    def note_activity(self, state: str = "") -> None:
        pass

    async def list_as(self, session_id: str, name: str) -> None:
        pass

    async def settled(self) -> None:
        pass  # nobody else ends one of these kernels


class ScriptedHost:
    """Starts scripted kernels, and keeps a record.

    Attributes
    ----------
    runs : dict
        What was run, by code, in the order in which it began.
    processes : list of ScriptedProcess
        All there have been.
    problems : list of str
        What no engine may do to a kernel.
    """

    default_kernel_name = "scripted"

    def __init__(self, random: Random) -> None:
        self._random = random
        self.context: zmq.Context[zmq.Socket[bytes]] | None = None
        self.kernels: dict[str, ScriptedKernel] = {}
        self.aside: set[str] = set()
        self.processes: list[ScriptedProcess] = []
        self.runs: dict[str, Run] = {}
        self.problems: list[str] = []

    # --- time and record ---

    def improper_messages(self) -> Iterator[tuple[str, Any, str]]:
        """Yield what a kernel sends beside its output: channels, parents, and texts."""
        while self._random.random() < 0.15:
            parent = self._random.choice([{"msg_id": []}, {"msg_id": {}}, [], "parent", {"msg_id": "i" * 1000}])
            text = "x" * self._random.choice([1, 1, LARGE_BYTES + 1])
            yield self._random.choice(["iopub", "iopub", "shell", "stdin"]), parent, text

    def delay(self) -> float:
        return self._random.choice((0.0, 0.0, 0.0005, 0.003, LATENCY_SECONDS))

    def start_delay(self) -> float:
        return self._random.choice((0.0, 0.05, 1.5))

    def check(self, right: bool, problem: str) -> None:
        if not right:
            self.problems.append(problem)

    def note_run(self, code: str, process: ScriptedProcess) -> Run:
        self.check(code not in self.runs, f"{code!r} ran twice")
        for other in self.runs.values():
            same = other.process.session_id == process.session_id
            self.check(other.over is not None or not same, f"{code!r} ran beside {other.code!r}")
        run = self.runs[code] = Run(code, process, asyncio.get_running_loop().time())
        return run

    def new_process(self, session_id: str) -> ScriptedProcess:
        self.check(not self.living(session_id), f"{session_id} has two kernels")
        process = ScriptedProcess(self, session_id)
        self.processes.append(process)
        return process

    def living(self, session_id: str) -> list[ScriptedProcess]:
        return [process for process in self.processes if process.alive and process.session_id == session_id]

    # --- the port ---

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        return [await self.find("scripted")]

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        await asyncio.sleep(self.delay())
        return KernelSpecInfo(kernel_name, "Scripted", "scripted")

    def running(self, kernel_id: str) -> KernelSpecInfo:
        raise KernelNotFound("all of these kernels are sessions' own")

    async def attach(self, kernel_id: str) -> ScriptedKernel:
        raise KernelNotFound("all of these kernels are sessions' own")

    def runs_elsewhere(self, kernel_name: str) -> bool:
        return False

    def program_of(self, kernel_name: str) -> str:
        return "python"

    def version_of(self, kernel_name: str) -> str:
        return "1"

    def use_pool(self, pool: RoomMaker) -> bool:
        return True  # there is always room

    def enlist(self, kernel: Kernel) -> None:
        self.check(kernel.kernel_id in self.aside, f"{kernel.kernel_id} was given to two sessions")
        self.aside.discard(kernel.kernel_id)

    async def start(
        self,
        kernel_name: str,
        env: Mapping[str, str],
        cwd: str | None = None,
        isolate: str | None = None,
        *,
        aside: str | None = None,
        launch: KernelLaunch | None = None,
    ) -> ScriptedKernel:
        await asyncio.sleep(self.start_delay())
        kernel = ScriptedKernel(self, env[MARK])
        kernel.kernel_id = aside or kernel.kernel_id
        self.kernels[kernel.kernel_id] = kernel
        if aside:
            self.aside.add(kernel.kernel_id)
        return kernel
