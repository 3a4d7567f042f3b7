"""Tools for files of sessions, and for outputs that were too long for the record of their execution."""

from __future__ import annotations

import base64
import binascii
import codecs

from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel, Field

from ..engine.ports import FileReader
from ..errors import InvalidRequest
from ..models import FileInfo
from .resource_uris import file_uri, output_uri
from .session_choice import resolve_session_id
from .tool_call import Arguments, ToolCall, make_result

#: Bytes of a file that one call returns at most, and by default.
MAX_READ_BYTES, DEFAULT_READ_BYTES = 1_000_000, 50_000
_SHOWN_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_LINKS = 100
_CONTINUATION = bytes(range(0x80, 0xC0))
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_SESSION = Field("", description="Id of the session; by default the one that this client uses.")
_OFFSET = Field(0, ge=0, description="First byte to return.")
_MAX_BYTES = Field(DEFAULT_READ_BYTES, ge=1, le=MAX_READ_BYTES, description="Highest number of bytes to return.")


class ListFilesArguments(Arguments):
    """Arguments of `list_files`."""

    session: str = _SESSION
    path: str = Field("", description="Directory, relative to the session's working directory; all files below it.")


class ReadFileArguments(Arguments):
    """Arguments of `read_file`."""

    path: str = Field(description="Path relative to the session's working directory.")
    session: str = _SESSION
    offset: int = _OFFSET
    max_bytes: int = _MAX_BYTES


class WriteFileArguments(Arguments):
    """Arguments of `write_file`."""

    path: str = Field(description="Path relative to the session's working directory; directories are made.")
    text: str = Field("", description="Content as text, written in UTF-8.")
    base64: str = Field("", description="Content as base64, for anything but text; then there is no 'text'.")
    session: str = _SESSION


class DownloadOutputArguments(Arguments):
    """Arguments of `download_output`."""

    execution: str = Field(min_length=1, description="Id of the run whose record names the output in 'truncated'.")
    name: str = Field(description="Name of the output, such as 'stdout' or 'display-1.png'.")
    offset: int = _OFFSET
    max_bytes: int = _MAX_BYTES


class FileResult(BaseModel):
    """A file, as tools describe it."""

    path: str
    size_bytes: int
    mime_type: str
    uri: str = Field(description="Resource with the whole content.")

    @classmethod
    def of(cls, session_id: str, info: FileInfo) -> FileResult:
        """Return the description of a session's file."""
        return cls(
            path=info.path, size_bytes=info.size_bytes, mime_type=info.mime_type, uri=file_uri(session_id, info.path)
        )

    def to_link(self) -> ResourceLink:
        """Return a link to it."""
        return ResourceLink(name=self.path, uri=self.uri, mime_type=self.mime_type, size=self.size_bytes)


class FilesResult(BaseModel):
    """Structured content of `list_files`."""

    files: list[FileResult]
    truncated: bool = Field(description="Whether there are more files than are listed.")


class ContentResult(BaseModel):
    """Structured content of `read_file` and `download_output`."""

    uri: str
    size_bytes: int = Field(description="Size of the whole.")
    offset: int
    returned_bytes: int
    text: str | None = Field(description="The content, if it is text in UTF-8.")


class WrittenResult(BaseModel):
    """Structured content of `write_file`."""

    file: FileResult
    created: bool = Field(description="False if there was a file before.")


async def list_files(call: ToolCall, arguments: ListFilesArguments) -> CallToolResult:
    """List the files of a session."""
    session_id = resolve_session_id(call, arguments.session)
    found = await call.engine.files.list(
        call.caller, session_id, arguments.path, is_wanted=call.request.handler.is_wanted
    )
    files = [FileResult.of(session_id, info) for info in found.files]
    lines = [f"{info.path} ({info.size_bytes} bytes)" for info in found.files]
    if found.truncated:
        lines.append("(there are more)")
    content: list[ContentBlock] = [TextContent(text="\n".join(lines) or "(no files)")]
    content += [file.to_link() for file in files[:_MAX_LINKS]]
    return make_result(FilesResult(files=files, truncated=found.truncated), content)


async def read_file(call: ToolCall, arguments: ReadFileArguments) -> CallToolResult:
    """Read a part of a file."""
    session_id = resolve_session_id(call, arguments.session)
    reader = await call.engine.files.open(call.caller, session_id, arguments.path)
    return await _content(reader, file_uri(session_id, arguments.path), arguments.offset, arguments.max_bytes)


async def download_output(call: ToolCall, arguments: DownloadOutputArguments) -> CallToolResult:
    """Read a part of an output that the execution's record leaves out."""
    reader = await call.engine.outputs.open(call.caller, arguments.execution, arguments.name)
    return await _content(
        reader, output_uri(arguments.execution, arguments.name), arguments.offset, arguments.max_bytes
    )


async def write_file(call: ToolCall, arguments: WriteFileArguments) -> CallToolResult:
    """Write a file as a whole."""
    if arguments.text and arguments.base64:
        raise InvalidRequest("give the content as 'text' or as 'base64', not both")
    data = _decode(arguments.base64) if arguments.base64 else arguments.text.encode("utf-8", "surrogatepass")
    session_id = resolve_session_id(call, arguments.session)
    writer = await call.engine.files.create(call.caller, session_id, arguments.path, len(data))
    try:
        await writer.write(data)
        info, created = await writer.commit()
    finally:
        await writer.discard()
    await call.note_changes(session_id, [info.path])
    file = FileResult.of(session_id, info)
    text = f"{'Created' if created else 'Replaced'} {info.path} ({info.size_bytes} bytes)"
    return make_result(WrittenResult(file=file, created=created), [TextContent(text=text), file.to_link()])


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("'base64' is not valid base64") from None


async def read_range(reader: FileReader, offset: int, max_bytes: int) -> bytes:
    """Return a part of an open file, and close it."""
    found = bytearray()
    position = 0
    try:
        async for block in reader.blocks():
            found += block[max(0, offset - position) :]
            position += len(block)
            if len(found) >= max_bytes:
                break
    finally:
        await reader.close()
    return bytes(found[:max_bytes])


async def _content(reader: FileReader, uri: str, offset: int, max_bytes: int) -> CallToolResult:
    info = reader.info
    data = await read_range(reader, offset, max_bytes)
    is_whole = len(data) == info.size_bytes
    text = decode_text(data, may_be_cut=not is_whole)
    block: ContentBlock
    if text is not None:
        block = TextContent(text=text or "(empty)")
    elif is_whole and info.mime_type in _SHOWN_IMAGES:
        block = ImageContent(data=base64.b64encode(data).decode(), mime_type=info.mime_type)
    else:
        blob = base64.b64encode(data).decode()
        block = EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=blob, mime_type=info.mime_type))
    content = [block]
    if not is_whole:
        content.append(TextContent(text=f"(bytes {offset} to {offset + len(data)} of {info.size_bytes})"))
    found = ContentResult(uri=uri, size_bytes=info.size_bytes, offset=offset, returned_bytes=len(data), text=text)
    return make_result(found, content)


def decode_text(data: bytes, *, may_be_cut: bool = False) -> str | None:
    """Return bytes as text, if they are UTF-8 without NUL; of a part, a character cut at either end is replaced."""
    if b"\0" in data:
        return None
    decoder = codecs.getincrementaldecoder("utf-8")()
    # Bytes that continue a character, of which a cut leaves three at most.
    cut = len(data[:3]) - len(data[:3].lstrip(_CONTINUATION)) if may_be_cut else 0
    try:
        text = decoder.decode(data[cut:], final=not may_be_cut)
    except UnicodeDecodeError:
        return None
    return _REPLACED * cut + text + (_REPLACED if decoder.getstate()[0] else "")
