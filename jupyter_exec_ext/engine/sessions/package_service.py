"""Package service: downloads wheels for a session, and installs them in it by an execution like all others."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence

from ...auth.caller import Caller
from ...errors import Conflict, PackagesNotFound, QueueFull
from ...models import ExecutionRequest
from ...protocol.kernel_preparation import install_code
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

_DOWNLOADS_AT_ONCE = 2
_MAX_WAITING = 20
_RETRY_SECONDS = 5.0
# Names for which jupyter_client starts its own Python.
_ITS_OWN_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")


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
        self._turns = asyncio.Semaphore(_DOWNLOADS_AT_ONCE)
        self._waiting = 0

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
            If too many downloads wait.
        """
        requirements = parse_requirements(packages)
        live = await self._sessions.get_live(caller, session_id)
        await self._packages.require(caller, live)
        wheels = await self._wheels_for(live.record.kernel_name, requirements)
        own = FileLimits(max_session_bytes=self._settings.max_session_bytes or None)
        most_bytes = own.within(limits_of(caller.policies)).max_session_bytes
        if most_bytes is not None:
            directory = self._packages.directory(session_id)
            size_bytes = sum(wheel.unpacked_bytes for wheel in wheels)
            await asyncio.to_thread(require_space, directory, size_bytes, most_bytes)
        code = install_code(requirements, {str(wheel.path): wheel.sha256 for wheel in wheels})
        request = ExecutionRequest(code, language="python")
        execution = await self._executions.execute(caller, session_id, request, idempotency_of(key, request))
        # The wheels show what was installed, the requirements what was asked for.
        names = [wheel.path.name for wheel in wheels]
        self._audit.record(
            "session", "install_asked", caller.principal, session_id, packages=requirements, wheels=names
        )
        return execution

    async def _wheels_for(self, kernel_name: str, requirements: Sequence[str]) -> list[CachedWheel]:
        """Return verified wheels of the cache, which are downloaded if need be."""
        python = _resolve_python(self._host.program_of(kernel_name))
        wheelhouse = self._settings.wheelhouse
        key = await asyncio.to_thread(_key_of, python, requirements, wheelhouse)
        cache = await self._packages.get_cache()
        found = await asyncio.to_thread(cache.find, key)
        if found is not None:
            return found
        if self._waiting >= _MAX_WAITING:
            raise QueueFull(
                f"{self._waiting} downloads of packages wait already; try again later",
                retry_after_seconds=_RETRY_SECONDS,
            )
        self._waiting += 1
        try:
            async with self._turns:
                # Another session may have had the same ones downloaded meanwhile.
                found = await asyncio.to_thread(cache.find, key)
                return found if found is not None else await self._download(cache, key, python, requirements)
        finally:
            self._waiting -= 1

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
    if _ITS_OWN_PYTHON.fullmatch(program):
        return sys.executable
    found = shutil.which(program)
    if found is None:
        raise PackagesNotFound(f"the kernel's program {program!r} is not there, so no packages can be chosen for it")
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
