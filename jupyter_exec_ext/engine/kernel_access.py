"""Which kernels a caller may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..auth.caller import Caller
from ..auth.policy import check_attach, check_kernel
from ..auth.scopes import scope
from ..errors import Conflict, IsolationRequired, KernelSpecNotFound, MissingScope, PolicyDenied
from ..models import KernelSpecInfo, Session, SessionRequest
from .ports import KernelHost
from .settings import EngineSettings

UNPROTECTED = (
    "scoped tokens may not use kernels without isolation, whose code has all rights of the server's user; choose an "
    "isolated kernelspec, or let the administrator set ExecEngine.allow_unprotected_tokens"
)


class KernelAccess:
    """The kernels of a host, for callers."""

    def __init__(self, host: KernelHost, settings: EngineSettings) -> None:
        self._host = host
        self._settings = settings

    def say_what_is_in_force(self) -> None:
        """Tell the log what scoped tokens mean here."""
        if self._settings.allow_unprotected_tokens:
            self._settings.log.warning(
                "scoped tokens may use kernels without isolation (ExecEngine.allow_unprotected_tokens): their code has "
                "all rights of the server's user, whatever their scopes and policies say"
            )
        else:
            self._settings.log.info("scoped tokens are refused on kernels without isolation")

    async def kernelspecs(self, caller: Caller) -> list[KernelSpecInfo]:
        """Return the kernelspecs that a caller may use."""
        usable = []
        for spec in map(self._with_isolation, await self._host.kernelspecs()):
            try:
                self._check(caller, spec)
            except PolicyDenied:
                continue
            usable.append(spec)
        return usable

    async def choose(self, caller: Caller, request: SessionRequest, sessions: Sequence[Session]) -> KernelSpecInfo:
        """Return the kernelspec of the kernel that is asked for, if the caller may have that kernel.

        Parameters
        ----------
        sessions : sequence of Session
            Those that the caller may see.

        Raises
        ------
        MissingScope, PolicyDenied, IsolationRequired, KernelSpecNotFound, KernelNotFound
        Conflict
            If the kernel to attach is that of one of `sessions`.
        """
        for needed in _scopes_for(request):
            if needed not in caller.scopes:
                raise MissingScope(f"this needs the scope {needed!r}, which the token does not have")
        if request.kernel_id is None:
            spec = await self._find(caller, request.kernel_name or self._host.default_kernel_name)
        else:
            spec = self._attachable(caller, request.kernel_id, sessions)
        spec = self._with_isolation(spec)
        self._check(caller, spec)
        return spec

    async def _find(self, caller: Caller, kernel_name: str) -> KernelSpecInfo:
        try:
            return await self._host.find(kernel_name)
        except KernelSpecNotFound:  # which names them all
            if not caller.bounds:
                raise
            names = ", ".join(spec.name for spec in await self.kernelspecs(caller)) or "none"
            raise KernelSpecNotFound(f"there is no kernelspec {kernel_name[:100]!r}; you may use {names}") from None

    def _attachable(self, caller: Caller, kernel_id: str, sessions: Sequence[Session]) -> KernelSpecInfo:
        for policy in caller.policies:
            check_attach(policy)
        for session in sessions:
            if session.kernel_id == kernel_id and not session.attached:
                raise Conflict(f"this is the kernel of the session {session.id!r}; use that session")
        return self._host.running(kernel_id)

    def _with_isolation(self, spec: KernelSpecInfo) -> KernelSpecInfo:
        """Say how isolated the kernels of a kernelspec are."""
        return replace(spec, isolation=self._settings.isolation_levels.get(spec.provisioner, "none"))

    def _check(self, caller: Caller, spec: KernelSpecInfo) -> None:
        """Decide whether a caller may use the kernels of a kernelspec; raises `PolicyDenied`."""
        for policy in caller.policies:
            check_kernel(policy, spec.name, spec.isolation)
        if caller.bounds and spec.isolation == "none" and not self._settings.allow_unprotected_tokens:
            raise IsolationRequired(UNPROTECTED)


def _scopes_for(request: SessionRequest) -> Iterator[str]:
    yield scope("sessions:create" if request.kernel_id is None else "kernels:attach")
    if request.env:  # there are variables that make a kernel run code when it starts
        yield scope("executions:create")
