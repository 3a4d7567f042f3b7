"""Router: forwards one request to one server, and the answer back, in pieces and in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ..aca.protocol.error_format import OWN_CODE_HEADER, error_from_answer
from ..client.api.answers import error_from
from ..client.api.steps import Reply
from ..errors import ExecError, InvalidRequest, ServerUnreachable, Unavailable
from .pool_server import Server

#: Key of a request: the path that the pool is served below, with a slash at both ends.
PREFIX = web.RequestKey("prefix", str)
#: A client that is told that a server is away asks again after this time.
RETRY_AFTER_SECONDS = 1.0
# Of one connection (RFC 9110, 7.6.1), or the pool's own.
_NOT_FORWARDED = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "expect", "authorization", "cookie", "origin", "referer"),
        *("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-xsrftoken"),
    }
)
_NOT_RETURNED = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "set-cookie", "server", "date"})
# Answers up to this size are sent with their headers at once.
_SMALL_BYTES = 64 * 1024

Answered = Callable[[int, "CIMultiDictProxy[str]"], None]


class NothingSent(Exception):
    """The server cannot be reached: the caller's request was not sent to it, and another server may be asked."""


class Refused(Exception):
    """The server has refused the request for a reason of its own, so another one may be asked.

    Parameters
    ----------
    error : ExecError
        What it says.
    """

    def __init__(self, error: ExecError) -> None:
        super().__init__(error.message)
        self.error = error


class Router:
    """Forwards requests.

    Parameters
    ----------
    http : aiohttp.ClientSession
        Connections to the servers; it does not decompress.
    on_refused_secret : callable
        Called with a server and a secret that it does not know.
    """

    def __init__(self, http: aiohttp.ClientSession, on_refused_secret: Callable[[Server, str], None]) -> None:
        self._http = http
        self._on_refused_secret = on_refused_secret

    async def forward(
        self,
        incoming: web.Request,
        server: Server,
        secret: str,
        *,
        body: bytes | None = None,
        on_answer: Answered | None = None,
        refusals: Collection[str] = (),
    ) -> web.StreamResponse:
        """Forward a request, and return the answer when it has been sent.

        Parameters
        ----------
        body : bytes, optional
            The body of the request, if it was read already; otherwise it is forwarded as it comes.
        on_answer : callable, optional
            Called with the status and the headers of the answer, before anything of it is sent.
        refusals : collection of str
            Codes of errors that raise `Refused`.

        Raises
        ------
        NothingSent, Refused
            If another server may be asked.
        Unavailable
            If the caller's token on the server is not good any more.
        ServerUnreachable
            If the server does not answer any more. The client is told only of a request that changes nothing; the
            connection of another one is cut, since an answer would say that the server has not got it.
        """
        work = asyncio.ensure_future(self._forward(incoming, server, secret, body, on_answer, refusals))
        away = asyncio.ensure_future(server.away.wait())
        try:
            await asyncio.wait({work, away}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise _error_without_answer(incoming, server)
        finally:
            away.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    async def _forward(
        self,
        incoming: web.Request,
        server: Server,
        secret: str,
        body: bytes | None,
        on_answer: Answered | None,
        refusals: Collection[str],
    ) -> web.StreamResponse:
        headers = _drop_headers(incoming.headers, _NOT_FORWARDED)
        for name, value in headers.items():  # how others would be read is nowhere said
            if not value.isascii():
                raise InvalidRequest(f"{name!r} must have ASCII characters only")
        headers["Authorization"] = f"token {secret}"
        data = body if body is not None else incoming.content if incoming.body_exists else None
        path = incoming.rel_url.raw_path.removeprefix(incoming[PREFIX])
        query = f"?{incoming.rel_url.raw_query_string}" if incoming.rel_url.raw_query_string else ""
        url = URL(f"{server.address}{path}{query}", encoded=True)
        response: web.StreamResponse | None = None
        try:
            async with self._http.request(
                incoming.method, url, headers=headers, data=data, allow_redirects=False
            ) as answer:
                if answer.status == 401:
                    self._on_refused_secret(server, secret)
                    raise Unavailable(
                        f"the server {server.name} did not know the pool's token; try again", retry_after_seconds=1
                    )
                if answer.status in (429, 503) and refusals:
                    body, named = await answer.read(), _lower_case_names(answer.headers)
                    error = error_from(Reply(answer.status, named, body))
                    if (kind := ExecError.for_code(named.get(OWN_CODE_HEADER, ""))) is not None:
                        error = kind(error_from_answer(answer.status, body).message)
                    if error.code in refusals:
                        raise Refused(error)
                if on_answer is not None:
                    on_answer(answer.status, answer.headers)
                kept = _headers_for_client(answer.headers, incoming[PREFIX])
                if answer.content_length is not None and answer.content_length <= _SMALL_BYTES:
                    return web.Response(status=answer.status, headers=kept, body=await answer.read())
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(incoming)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except aiohttp.ClientConnectorError as error:
            raise NothingSent(str(error)) from None
        except (aiohttp.ClientError, OSError) as error:
            if response is None:
                raise _error_without_answer(incoming, server) from error
            _cut(incoming)
            return response
        except asyncio.CancelledError:
            if response is not None:
                _cut(incoming)
            raise


def _headers_for_client(headers: CIMultiDictProxy[str], prefix: str) -> CIMultiDict[str]:
    kept = _drop_headers(headers, _NOT_RETURNED)
    location = kept.get("Location", "")
    if "/exec/" in location:  # the server's path is not the pool's
        kept["Location"] = prefix + location[location.index("/exec/") + 1 :]
    return kept


def unreachable(server: Server) -> ServerUnreachable:
    """Return the error for a request to a server that does not answer."""
    return ServerUnreachable(
        f"the server {server.name} does not answer; its sessions are kept until it is given up",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def _error_without_answer(incoming: web.Request, server: Server) -> ServerUnreachable:
    """Return the error for a request without an answer; cut the connection of one that may have changed something."""
    if incoming.method not in ("GET", "HEAD"):
        _cut(incoming)
    return unreachable(server)


def _cut(incoming: web.Request) -> None:
    """End the connection of a client that has got a part of an answer, so that it does not take it for the whole."""
    if incoming.transport is not None:
        incoming.transport.abort()


def _drop_headers(headers: CIMultiDictProxy[str], names: Collection[str]) -> CIMultiDict[str]:
    listed = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in names and k.lower() not in listed)


def _lower_case_names(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
