"""Base handler of the ACA sessions' protocol on our sessions.

A request names its session by an ``identifier`` that the caller chooses. The first request that needs the session
makes it, if the caller may make sessions. It belongs to this caller only: the same identifier of another caller, or in
another pool, is another session.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jupyter_server.utils import url_path_join

from ...engine.sessions.session_registry import Name
from ...errors import ExecError, InvalidRequest, NotFound, SessionNotFound
from ...models import Session, SessionRequest
from ...server.base_handler import ExecHandler
from ...server.gate import authorize
from ..protocol.addresses import api_version_of, identifier_of, query_from_text
from ..protocol.error_format import CODE_HEADER, OWN_CODE_HEADER, error_to_json

ACA_PREFIX = "exec/aca"
T = TypeVar("T")


@cache
def setup_code() -> str:
    """Return the code that makes a Python kernel behave like one of a session pool."""
    source = files("jupyter_exec_ext.aca.endpoint").joinpath("kernel_emulation.py").read_text()
    # A namespace of its own keeps its names out of the user's.
    return f"exec({source!r} + '\\nset_up()\\n', {{'__name__': 'jupyter_exec_ext_setup'}})"


class ACAHandler(ExecHandler):
    """Base of the handlers under ``exec/aca``."""

    pool = ""
    # Api-version of a path that is older than the parameter.
    assumed_api_version: str | None = None

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Decode a path that may not be UTF-8; `prepare` refuses it after authentication."""
        return value.decode("utf-8", "surrogateescape")

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Authenticate the request, and check the name of the pool."""
        # Tornado passes `path_kwargs` on to the method of the verb, which does not know the pool.
        self.pool = self.path_kwargs.pop("pool", "").strip("/")
        await super().prepare()
        if not self.pool.isprintable():  # includes bytes that are not UTF-8
            raise InvalidRequest("the name of the pool must be UTF-8 without control characters")

    @cached_property
    def fields(self) -> dict[str, str]:
        """Parameters of the query, with a known api-version; raises `InvalidRequest`."""
        fields = query_from_text(self.request.query)
        if self.assumed_api_version is not None:
            fields.setdefault("api-version", self.assumed_api_version)
        api_version_of(fields)  # checked for every operation
        return fields

    @property
    def identifier(self) -> str:
        """The caller's identifier of the session; raises `InvalidRequest`."""
        return identifier_of(self.fields)

    @property
    def name(self) -> Name:
        """The engine's name of the session; raises `InvalidRequest`."""
        return (self.pool, self.identifier)

    async def in_session(self, verb: Callable[[str], Awaitable[T]]) -> T:
        """Call a verb with the id of the session, which is made if it does not exist."""
        return await self.engine.named.use(self.caller, self.name, self._create_session, verb)

    async def _create_session(self) -> Session:
        """Make the session, if the caller has the right to; the right to use a session is another one."""
        await authorize(self, "write", "kernels")
        # Azure's paths have the pool's name at their end: `…/sessionPools/NAME`.
        pool = self.pool.rpartition("/")[2]
        known = [spec.name for spec in await self.engine.kernelspecs(self.caller)]
        request = SessionRequest(kernel_name=pool if pool in known else None, name=self.identifier)
        return await self.engine.create_session(self.caller, request, setup_code=setup_code())

    async def session(self) -> Session:
        """Return the session without making it; raises `SessionNotFound`."""
        session = await self.engine.named.find(self.caller, self.name)
        if session is None:
            raise SessionNotFound("there is no session with this identifier")
        return session

    def url_of(self, path: str, query: Mapping[str, str]) -> str:
        """Return the address of a path in the request's pool, as the client sees it."""
        place = url_path_join(self.base_url, ACA_PREFIX, quote(self.pool), path)
        text = urlencode(query, quote_via=quote, safe="")
        return f"{self.request.protocol}://{self.request.host}{place}?{text}"

    @property
    def now(self) -> float:
        """Current time in seconds since the epoch."""
        return time.time()

    @property
    def max_seconds(self) -> float | None:
        """Highest age of the caller's sessions in seconds; None without a limit."""
        limits = [policy.max_session_seconds for policy in self.caller.policies]
        return min((limit for limit in limits if limit is not None), default=None)

    def error_answer(self, error: ExecError) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON for an error, in the service's form."""
        status, code, body = error_to_json(error, trace_id=self.request_id)
        self.set_header(CODE_HEADER, code)
        self.set_header(OWN_CODE_HEADER, error.code)
        return status, body


class ACANotFoundHandler(ACAHandler):
    """All other paths under ``exec/aca``."""

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Answer a known caller with 404, and an unknown one with 401."""
        # Without `super`, which would answer 405: the route has no methods.
        self.caller = await self.services.gate.authenticate(self)
        raise NotFound("there is no such path; GET exec/aca/openapi.yaml describes those there are")
