"""Session packages: which sessions may install packages, and what their kernels are told of index and wheels."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from ...auth.caller import Caller
from ...auth.policy import check_packages
from ...auth.policy_parsing import PACKAGES_INSTALL
from ...errors import Conflict
from ...models import KernelSpecInfo
from ...protocol.kernel_preparation import packages_code
from ...protocol.languages import normalize_language
from ..packages.package_index import machine_index
from ..packages.wheel_cache import WheelCache
from ..settings import EngineSettings
from .live_session import LiveSession

#: Names directories that an isolated kernel reads, separated by the system's separator of paths.
READABLE_VARIABLE = "JUPYTER_EXEC_READABLE"


@dataclass(frozen=True, slots=True)
class PackagesPlan:
    """Packages of a session that is to be built.

    Parameters
    ----------
    variables : dict
        Variables of pip and uv inside its kernel.
    readable : str
        Value of `READABLE_VARIABLE`.
    """

    variables: dict[str, str]
    readable: str


class SessionPackages:
    """Sessions that can install packages."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._directory = Path(settings.package_cache).absolute()
        self._sessions: set[str] = set()

    async def get_cache(self) -> WheelCache:
        """Return the cache of wheels from the wheelhouse or, without one, from the index."""
        wheelhouse = self._settings.wheelhouse
        source = f"wheelhouse {wheelhouse}" if wheelhouse else repr(await asyncio.to_thread(machine_index))
        return WheelCache(self._directory, self._settings.package_cache_bytes, source)

    async def plan(self, caller: Caller, spec: KernelSpecInfo, origin_id: str = "") -> PackagesPlan | None:
        """Return the packages of a session with a kernel of its own; None if the caller's policies give it none.

        Without a policy, a session has none either until the first installation. A branch has some if its origin, a
        session with the id `origin_id`, does.
        """
        is_allowed = bool(caller.bounds) and all(policy.packages == PACKAGES_INSTALL for policy in caller.policies)
        is_allowed = is_allowed or origin_id in self._sessions
        return await self._make_plan() if is_allowed and self._is_possible(spec.language, spec.isolation) else None

    async def _make_plan(self) -> PackagesPlan:
        cache = await self.get_cache()
        await asyncio.to_thread(cache.prepare)
        wheelhouse = self._settings.wheelhouse
        # A sandbox with a directory that is not there could not be made.
        is_there = bool(wheelhouse) and await asyncio.to_thread(os.path.isdir, wheelhouse)
        places = [str(cache.wheels), *([wheelhouse] if is_there else [])]
        variables = {"PIP_FIND_LINKS": " ".join(places), "UV_FIND_LINKS": ",".join(places)}
        if wheelhouse:
            variables |= {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
        else:
            variables |= (await asyncio.to_thread(machine_index)).variables()
        return PackagesPlan(variables, os.pathsep.join(places))

    def _is_possible(self, language: str, isolation: str) -> bool:
        return normalize_language(language) == "python" and isolation != "remote" and self._settings.session_directories

    def register(self, session_id: str, plan: PackagesPlan) -> str:
        """Return the code by which a session's kernel gets its packages; the caller calls `unregister` afterwards."""
        self._sessions.add(session_id)
        return packages_code(str(self.directory(session_id)), plan.variables)

    def directory(self, session_id: str) -> Path:
        """Return the directory of a session."""
        return Path(self._settings.work_root).absolute() / session_id

    def unregister(self, session_id: str) -> None:
        """Forget a session."""
        self._sessions.discard(session_id)

    async def ensure_can_install(self, caller: Caller, live: LiveSession) -> None:
        """Make sure that a session can install packages.

        Raises
        ------
        PolicyDenied
            If a policy of the caller allows no packages.
        Conflict
            If the session's kernel can have none.
        """
        for policy in caller.policies:
            check_packages(policy)
        session = live.record
        if session.id in self._sessions:
            return
        if not self._settings.session_directories:
            raise Conflict(
                "sessions of this server have no directories for packages; its administrator can set "
                "ExecEngine.session_directories"
            )
        if session.attached or not self._is_possible(live.kernel.language, session.isolation):
            raise Conflict(
                "this session can have no packages of its own; sessions with a Python kernel of their own on this "
                "server can"
            )
        if session.isolation != "none":
            raise Conflict(
                "this session's kernel was isolated without packages; make a session with a token whose policy has "
                "packages = 'install'"
            )
        live.kernel.use_packages(self.register(session.id, await self._make_plan()))
        live.on_end(lambda: self.unregister(session.id))
