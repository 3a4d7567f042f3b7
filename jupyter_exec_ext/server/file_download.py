"""Sending a file: raw bytes as they are read, never a whole file in memory.

What code wrote is never shown on this origin: every download is an attachment of no particular type, in a sandbox, and
the browser is told not to guess.
"""

from __future__ import annotations

from tornado.iostream import StreamClosedError

from ..engine.ports import FileReader
from ..protocol.file_headers import DIGEST_HEADER, content_disposition, digest_header
from .base_handler import ExecHandler


async def send_file(handler: ExecHandler, reader: FileReader, sha256: str | None) -> None:
    """Answer with a file, named after its path, and close it; `sha256` is sent along if it is known."""
    try:
        handler.set_header("Content-Type", "application/octet-stream")
        handler.set_header("Content-Length", str(reader.info.size_bytes))
        handler.set_header("Content-Disposition", content_disposition(reader.info.path))
        handler.set_header("Content-Security-Policy", "sandbox")
        handler.set_header("X-Content-Type-Options", "nosniff")
        if sha256 is not None:
            handler.set_header(DIGEST_HEADER, digest_header(sha256))
        await handler.flush()
        async for block in reader.blocks():
            handler.write(block)
            await handler.flush()
        handler.finish()
    except StreamClosedError:
        handler.log.debug("the reader of a file is gone (request %s)", handler.request_id)
    finally:
        await reader.close()
