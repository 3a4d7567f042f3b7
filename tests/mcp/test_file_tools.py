"""Parts of files and outputs: ranges that are read, and bytes that are text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from jupyter_exec_ext.engine.ports import FileReader
from jupyter_exec_ext.mcp.file_tools import decode_text, read_range


class Reader:
    """A file in blocks."""

    def __init__(self, blocks: Sequence[bytes]) -> None:
        self._blocks = blocks
        self.read = 0
        self.closed = False

    async def blocks(self) -> AsyncIterator[bytes]:
        for block in self._blocks:
            self.read += 1
            yield block

    async def close(self) -> None:
        self.closed = True


BLOCKS = [b"abcd", b"efgh", b"ijkl"]


@pytest.mark.parametrize("offset", range(14))
@pytest.mark.parametrize("max_bytes", [1, 3, 4, 5, 100])
async def test_range_is_the_slice_of_the_whole(offset: int, max_bytes: int) -> None:
    reader = Reader(BLOCKS)
    found = await read_range(cast(FileReader, reader), offset, max_bytes)
    assert found == b"".join(BLOCKS)[offset : offset + max_bytes]
    assert reader.closed


async def test_blocks_after_the_range_are_not_read() -> None:
    reader = Reader(BLOCKS)
    await read_range(cast(FileReader, reader), 0, 4)
    assert reader.read == 1


async def test_reader_is_closed_after_an_error() -> None:
    class Broken(Reader):
        async def blocks(self) -> AsyncIterator[bytes]:
            yield b"a"
            raise OSError("it is gone")

    reader: Any = Broken([])
    with pytest.raises(OSError, match="it is gone"):
        await read_range(reader, 0, 100)
    assert reader.closed


@pytest.mark.parametrize(
    ("data", "may_be_cut", "text"),
    [
        (b"", False, ""),
        ("héllo".encode(), False, "héllo"),
        (b"a\0b", False, None),
        (b"\xff\xfe", False, None),
        ("€".encode()[:2], False, None),
        (b"abc" + "€".encode()[:2], True, "abc\ufffd"),
        ("€".encode()[1:] + b"abc", True, "\ufffd\ufffdabc"),
        ("€".encode()[1:] + b"abc" + "€".encode()[:2], True, "\ufffd\ufffdabc\ufffd"),
        (b"abcdef\xffabcdef", True, None),
        (b"\xff" + b"abcdef\xff" * 10, True, None),
    ],
)
def test_bytes_are_text_if_they_are_utf8_apart_from_cut_ends(data: bytes, may_be_cut: bool, text: str | None) -> None:
    assert decode_text(data, may_be_cut=may_be_cut) == text
