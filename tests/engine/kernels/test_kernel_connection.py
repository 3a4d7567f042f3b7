"""Our sockets against a kernel that sends what no kernel should."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zmq

from jupyter_exec_ext.engine.kernels.kernel_connection import KernelConnection
from jupyter_exec_ext.engine.kernels.shared_resources import EngineResources
from jupyter_exec_ext.errors import OutOfResources
from jupyter_exec_ext.protocol.kernel_messages import FrameCodec, KernelMessage

KEY = b"key"


class FakeKernel:
    """The four sockets of a kernel, to send anything from."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self.iopub = self._context.socket(zmq.PUB)
        self.others = {name: self._context.socket(zmq.ROUTER) for name in ("shell", "control", "stdin")}
        ports = {f"{name}_port": socket.bind_to_random_port("tcp://127.0.0.1") for name, socket in self.others.items()}
        ports["iopub_port"] = self.iopub.bind_to_random_port("tcp://127.0.0.1")
        self.info: dict[str, Any] = {"transport": "tcp", "ip": "127.0.0.1", "key": KEY, **ports}
        self.codec = FrameCodec(KEY, "hmac-sha256", "kernel")

    async def answer_probe(self) -> None:
        """Answer a request on shell, and only there."""
        identity, *frames = await asyncio.to_thread(self.others["shell"].recv_multipart)
        request = json.loads(frames[2])
        self.others["shell"].send_multipart([identity, *self.message("kernel_info_reply", request)])
        self.request = request

    def message(self, msg_type: str, parent: Any, **content: Any) -> list[bytes]:
        _, frames = self.codec.encode(msg_type, content)
        frames[3] = json.dumps(parent).encode()
        return [*frames[:1], self.codec._sign(frames[2:]), *frames[2:]]

    def close(self) -> None:
        for socket in (self.iopub, *self.others.values()):
            socket.close(linger=0)
        self._context.term()


@pytest.fixture
async def kernel() -> AsyncIterator[FakeKernel]:
    fake = FakeKernel()
    yield fake
    fake.close()


async def test_messages_after_one_that_breaks_the_reader_are_read(kernel: FakeKernel) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    def on_message(message: KernelMessage) -> None:
        if message.msg_type == "breaks":
            raise RuntimeError("a defect of ours")
        seen.put_nowait(message.msg_type)

    resources = EngineResources(10**6)
    connection = KernelConnection(resources, kernel.info, on_message)
    subscriber = kernel.message("status", {"msg_id": "x"})
    while seen.empty():  # until the subscription is there
        kernel.iopub.send_multipart([b"", *subscriber])
        await asyncio.sleep(0.01)
    unhashable = kernel.message("odd", {"msg_id": []})
    for frames in (kernel.message("breaks", {}), unhashable, [b"<IDS|MSG>"], kernel.message("last", {"msg_id": "y"})):
        kernel.iopub.send_multipart([b"", *frames])
    while await asyncio.wait_for(seen.get(), 30) != "last":
        pass
    connection.close()
    resources.close()


async def test_prove_with_reply_but_no_output_keeps_waiting(kernel: FakeKernel) -> None:
    resources = EngineResources(10**6)
    connection = KernelConnection(resources, kernel.info, lambda _: None)
    check = asyncio.create_task(connection.check(30))
    await asyncio.to_thread(kernel.others["shell"].recv_multipart)  # the first question gets lost
    await kernel.answer_probe()
    done, _ = await asyncio.wait([check], timeout=0.3)
    assert not done
    while not check.done():
        kernel.iopub.send_multipart([b"", *kernel.message("status", kernel.request)])
        await asyncio.wait([check], timeout=0.01)
    await check
    connection.close()
    resources.close()


async def test_prove_without_free_descriptor_raises_out_of_resources(kernel: FakeKernel) -> None:
    resources = EngineResources(10**6)
    connection = KernelConnection(resources, kernel.info, lambda _: None)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        with pytest.raises(OutOfResources):
            await connection.check(30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    connection.close()
    resources.close()


async def test_kernel_that_refuses_to_wait_is_read_ahead(kernel: FakeKernel) -> None:
    """Whatever it answers to the request: nothing of its output may be lost then."""
    resources = EngineResources(10**6)
    connection = KernelConnection(resources, kernel.info, lambda _: None, can_wait=True)
    checking = asyncio.create_task(connection.check(10))
    await kernel.answer_probe()
    identity, *frames = await asyncio.to_thread(kernel.others["shell"].recv_multipart)
    assert json.loads(frames[5])["user_expressions"]
    error = {"waits": {"status": "error", "ename": "ImportError", "evalue": "no ipykernel"}}
    reply = kernel.message("execute_reply", json.loads(frames[2]), status="ok", user_expressions=error)
    kernel.others["shell"].send_multipart([identity, *reply])
    while not checking.done():
        kernel.iopub.send_multipart([b"", *kernel.message("iopub_welcome", {})])
        await asyncio.sleep(0.01)
    await checking
    connection.close()
    resources.close()
