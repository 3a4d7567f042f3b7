"""Handlers of bodies that are taken in as they come, whatever their length."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from ..errors import ExecError
from .base_handler import DRAIN_BYTES, ExecHandler


class Upload(Protocol):
    """What takes in a body."""

    async def write(self, data: bytes) -> None:
        """Take in the next bytes; raises `ExecError`."""

    async def discard(self) -> None:
        """Leave no trace of what is not complete."""


U = TypeVar("U", bound=Upload)


class UploadHandler(ExecHandler, Generic[U]):
    """Base of handlers with a method that takes an upload."""

    upload_method = "PUT"
    max_upload_bytes = 2**62  # what a file may have is the engine's to say
    _upload: U | None = None
    _refusal: ExecError | None = None

    async def begin_upload(self) -> U:
        """Return what takes the body in; raises `ExecError` to refuse it."""
        raise NotImplementedError

    @property
    def takes_upload(self) -> bool:
        """Whether the request's method is that of uploads."""
        return self.request.method == self.upload_method

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Let a path that is not UTF-8 through to where it is refused, after authentication."""
        return value.decode("utf-8", "surrogateescape")

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Let the request in, or not; begin an upload before its body comes."""
        await super().prepare()
        if not self.takes_upload:
            return
        try:
            self._upload = await self.begin_upload()
        except ExecError as error:
            self._refuse(error, 0)

    def expect_body(self) -> None:
        """Set the limit of the body."""
        if self.takes_upload:
            self.limit_body(self.max_upload_bytes)
        else:
            super().expect_body()

    def content_length(self) -> int | None:
        """Return how long the body is; None where nobody knows."""
        text = self.request.headers.get("Content-Length", "")
        return int(text) if text.isdecimal() and len(text) < 19 else None

    def _refuse(self, error: ExecError, received: int) -> None:
        """Answer at the end of the body, if that is near, or now."""
        length = self.content_length()
        if length is None or length - received > DRAIN_BYTES:
            self._let_in = False
            raise error
        self._refusal = error

    async def data_received(self, chunk: bytes) -> None:  # type: ignore[override]  # Tornado waits for it
        """Write what came; the sender waits meanwhile."""
        if not self.takes_upload:
            super().data_received(chunk)
            return
        self._body_bytes += len(chunk)
        if self._upload is None:
            return
        try:
            await self._upload.write(chunk)
        except ExecError as error:
            await self._discard()
            try:
                self._refuse(error, self._body_bytes)
            except ExecError:
                self.send_error(error.status, exc_info=(type(error), error, None))

    def take_upload(self) -> U:
        """Return what has taken in the whole body; raises what was refused in it."""
        if self._refusal is not None:
            raise self._refusal
        assert self._upload is not None
        upload, self._upload = self._upload, None
        return upload

    async def _discard(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            await upload.discard()

    def on_connection_close(self) -> None:
        """Half a file is no file."""
        super().on_connection_close()
        self._spawn_discard()

    def on_finish(self) -> None:
        """Leave nothing of an upload that failed."""
        super().on_finish()
        self._spawn_discard()

    def _spawn_discard(self) -> None:
        if self._upload is not None:
            self.engine.background.start(self._discard())
