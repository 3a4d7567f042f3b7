"""Memory of messages that several channels of a kernel share: a message that had to wait goes on when there is room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from jupyter_exec_ext.engine.kernels.backpressure import KernelMemory, MessageMemory
from jupyter_exec_ext.protocol.kernel_messages import DELIMITER
from jupyter_exec_ext.protocol.zmtp import FrameBuffer, MessageReader, RawMessage
from jupyter_exec_ext.protocol.zmtp_frames import encode_message, opening

MAX_MESSAGE_BYTES = 4_000_000


class Kernel:
    """Two channels of a kernel, as `KernelConnection` has them, that are fed by hand."""

    def __init__(self, memory: MessageMemory) -> None:
        self.share: KernelMemory = memory.open(self)
        self.channels = [MessageReader(MAX_MESSAGE_BYTES, self.share.reserve, self.share.release) for _ in range(2)]
        self.read: list[int] = []
        self.while_asked: Callable[[], None] = lambda: None
        for channel in self.channels:
            channel.feed(opening("PUB"))
        self.memory_available()

    def partial_bytes(self) -> int:
        self.while_asked()
        return sum(channel.partial_bytes for channel in self.channels)

    def give_up_largest(self, reason: str) -> None:
        max(self.channels, key=lambda channel: channel.partial_bytes).skip()

    def memory_available(self) -> None:
        for channel in self.channels:
            while (message := channel.next()) is not None:
                assert isinstance(message, RawMessage)
                self.read.append(len(message.content))

    def feed(self, number: int, size: int, missing: int = 0) -> None:
        """Receive a message on a channel, but for its last bytes."""
        data = encode_message([DELIMITER, b"signature", b"{}", b"{}", b"{}", bytes(size)])
        self.channels[number].feed(data[: len(data) - missing])
        self.memory_available()


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("bounds", [(MAX_MESSAGE_BYTES, 100_000_000), (100_000_000, MAX_MESSAGE_BYTES)])
async def test_message_goes_on_after_another_of_its_kernel_was_given_up(bounds: tuple[int, int]) -> None:
    kernel = Kernel(MessageMemory(*bounds))
    kernel.feed(0, 3_500_000, missing=1)
    kernel.feed(1, 1_000_000)
    await some_turns()
    assert kernel.read == [1_000_000]
    assert not kernel.share.waits


async def test_message_goes_on_after_memory_was_released_while_it_was_checked() -> None:
    kernel = Kernel(MessageMemory(MAX_MESSAGE_BYTES, 100_000_000))
    read_by_a_worker = [FrameBuffer(kernel.share.release)]
    read_by_a_worker[0].reserved_bytes = 3_500_000
    assert kernel.share.reserve(3_500_000)

    def drop() -> None:
        worker = threading.Thread(target=read_by_a_worker.clear)
        worker.start()
        worker.join()

    kernel.while_asked = drop
    kernel.feed(1, 1_000_000)
    await some_turns()
    assert kernel.read == [1_000_000]


async def test_message_that_waits_is_not_forgotten_when_another_one_finds_room() -> None:
    memory = MessageMemory(MAX_MESSAGE_BYTES, 100_000_000)
    kernel = Kernel(memory)
    assert kernel.share.reserve(3_000_000)  # a complete message that is being read
    kernel.feed(0, 1_500_000)
    kernel.feed(1, 500_000)
    assert kernel.read == [500_000]
    kernel.share.release(3_000_000)
    await some_turns()
    assert kernel.read == [500_000, 1_500_000]
