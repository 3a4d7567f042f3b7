"""Package service: downloads wheels for a session, and installs them in it by an execution like all others."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from ...auth.caller import Caller
from ...errors import Conflict, ExecError, QueueFull
from ...models import ExecutionRequest
from ...protocol.kernel_preparation import install_code
from ..concurrency import FairTurns, wait_shielded
from ..executions.live_execution import ExecutionHandle
from ..files.file_transfer import limits_of
from ..files.session_space import require_space
from ..packages.package_index import machine_index
from ..packages.wheel_cache import CachedWheel, WheelCache
from ..packages.wheel_download import download_wheels, parse_requirements
from ..ports import AuditTrail, FileLimits, KernelHost
from ..settings import EngineSettings
from .execution_service import ExecutionService, idempotency_of
from .session_packages import SessionPackages
from .session_service import SessionService

_DOWNLOADS_AT_ONCE = 3
# Each hashes all wheels of a set in a thread, which other work of the server needs as well.
_LOOKUPS_AT_ONCE, _LOOKUPS_OF_ONE = 3, 2
_MAX_WAITING = 20
_MAX_WAITING_OF_ONE = 2  # of a principal: less than run at once, so that others come to turns
_RETRY_SECONDS = 5.0
# Names for which jupyter_client starts its own Python.
_ITS_OWN_PYTHON = ("python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}")


class PackageService:
    """Installs packages in sessions."""

    def __init__(
        self,
        settings: EngineSettings,
        host: KernelHost,
        packages: SessionPackages,
        sessions: SessionService,
        executions: ExecutionService,
        audit: AuditTrail,
    ) -> None:
        self._settings = settings
        self._host = host
        self._packages = packages
        self._sessions = sessions
        self._executions = executions
        self._audit = audit
        self._lookups = FairTurns(_LOOKUPS_AT_ONCE, per_key=_LOOKUPS_OF_ONE)
        self._turns = asyncio.Semaphore(_DOWNLOADS_AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def install(
        self, caller: Caller, session_id: str, packages: Sequence[str], key: str | None = None
    ) -> ExecutionHandle:
        """Install packages in a session, and return the execution that does it.

        Parameters
        ----------
        packages : sequence of str
            Requirements, such as ``pandas==2.2``.
        key : str, optional
            Idempotency key, as of `ExecutionService.execute`.

        Raises
        ------
        PackagesNotFound
            If a requirement is not valid, or there are no wheels for it.
        SessionNotFound, SessionEnded
            If there is no such live session.
        PolicyDenied, Conflict
            If the session may not install packages, or cannot.
        QuotaExceeded
            If the session has no room for them.
        QueueFull
            If too many downloads wait, or the session's queue is full.
        """
        requirements = parse_requirements(packages)
        # Of the requirements alone: a retry may get other wheels.
        retried = idempotency_of(key, ExecutionRequest(install_code(requirements, {}), language="python"))
        session = await self._sessions.get(caller, session_id)
        earlier = await self._executions.find_earlier(session_id, session.owner, retried)
        if earlier is not None:
            return earlier
        live = await self._sessions.get_live(caller, session_id)
        await self._packages.ensure_can_install(caller, live)
        record = partial(self._audit.record, "session", principal=caller.principal, subject=session_id)
        record("install_asked", packages=requirements)
        try:
            with live.reserve():
                pass  # a full queue needs no download
            wheels = await self._wheels_for(caller, live.record.kernel_name, requirements)
            await self._require_space(caller, session_id, wheels)
            code = install_code(requirements, {str(wheel.path): wheel.sha256 for wheel in wheels})
            request = ExecutionRequest(code, language="python")
            execution = await self._executions.execute(caller, session_id, request, retried)
        except BaseException as error:
            record("install_refused", reason=error.code if isinstance(error, ExecError) else type(error).__name__)
            raise
        record("install_queued", execution=execution.record.id, wheels=[wheel.path.name for wheel in wheels])
        return execution

    async def _require_space(self, caller: Caller, session_id: str, wheels: Sequence[CachedWheel]) -> None:
        own = FileLimits(max_session_bytes=self._settings.max_session_bytes or None)
        most_bytes = own.within(limits_of(caller.policies)).max_session_bytes
        if most_bytes is not None:
            directory = self._packages.directory(session_id)
            size_bytes = sum(wheel.unpacked_bytes for wheel in wheels)
            await asyncio.to_thread(require_space, directory, size_bytes, most_bytes)

    async def _wheels_for(self, caller: Caller, kernel_name: str, requirements: Sequence[str]) -> list[CachedWheel]:
        """Return verified wheels of the cache, which are downloaded if need be."""
        python = _resolve_python(self._host.program_of(kernel_name))
        wheelhouse = self._settings.wheelhouse
        key = await asyncio.to_thread(_key_of, python, requirements, wheelhouse)
        cache = await self._packages.get_cache()
        # Tokens that a token has made count with it.
        principal = caller.principal.partition("/")[0]
        found = await self._find(cache, key, principal)
        if found is not None:
            return found
        for waiting, most in ((self._waiting[principal], _MAX_WAITING_OF_ONE), (self._waiting.total(), _MAX_WAITING)):
            if waiting >= most:
                raise QueueFull(
                    f"{waiting} downloads of packages run or wait already; try again later",
                    retry_after_seconds=_RETRY_SECONDS,
                )
        self._waiting[principal] += 1
        try:
            async with self._turns:
                # Another session may have had the same ones downloaded meanwhile.
                found = await self._find(cache, key, principal)
                return found if found is not None else await self._download(cache, key, python, requirements)
        finally:
            self._waiting[principal] -= 1
            self._waiting += Counter()  # drops principals without any

    async def _find(self, cache: WheelCache, key: str, principal: str) -> list[CachedWheel] | None:
        """Return wheels of the cache, in a turn that lasts until they are hashed, also if the request ends before."""
        async with self._lookups.turn(principal):
            return await wait_shielded(asyncio.ensure_future(asyncio.to_thread(cache.find, key)))

    async def _download(
        self, cache: WheelCache, key: str, python: str, requirements: Sequence[str]
    ) -> list[CachedWheel]:
        directory = await asyncio.to_thread(cache.make_incoming)
        try:
            downloaded = await download_wheels(
                python, requirements, directory, self._settings.wheelhouse, max_bytes=cache.max_bytes
            )
            return await asyncio.to_thread(cache.add, key, downloaded)
        finally:
            await asyncio.to_thread(cache.remove_incoming, directory)


def _resolve_python(program: str) -> str:
    if program in _ITS_OWN_PYTHON:
        return sys.executable
    found = shutil.which(program)
    if found is None:
        raise Conflict(f"the kernel's program {program!r} is not there; its administrator can correct the kernelspec")
    return os.path.abspath(found)


def _key_of(python: str, requirements: Sequence[str], wheelhouse: str) -> str:
    """Return the key of a set of wheels: of the same requirements for the same Python from the same source."""
    try:
        source = [wheelhouse, os.stat(wheelhouse).st_mtime_ns] if wheelhouse else repr(machine_index())
    except FileNotFoundError:
        raise Conflict(
            "the server's directory of wheels (package_wheelhouse) is not there; ask its administrator"
        ) from None
    values = [python, os.stat(python).st_mtime_ns, sorted(requirements), source]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
