"""Kernel access: the kernelspecs and isolation levels that a caller may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...auth.caller import Caller
from ...auth.policy import check_attach, check_kernel, check_kernel_name
from ...auth.policy_narrowing import NO_NETWORK
from ...auth.scopes import require_scope
from ...errors import Conflict, IsolationRequired, KernelSpecNotFound, MissingScope, PolicyDenied
from ...models import AUTO_CHECKPOINT_OFF, ISOLATION_LEVELS, KernelSpecInfo, Session, SessionRequest
from ..kernels.provisioners import ISOLATABLE, level_by_name, why_unavailable
from ..ports import KernelHost
from ..settings import EngineSettings
from .caller_limits import EffectiveLimits
from .network_rules import has_rules
from .policy_grants import grants_within

UNPROTECTED = (
    "scoped tokens may not use kernels without isolation, whose code has all rights of the server's user; choose an "
    "isolated kernelspec, or let the administrator set ExecEngine.allow_unprotected_tokens"
)
# Levels of isolation for kernels on this machine, the strongest first.
_LOCAL_LEVELS = ("sandbox", "landlock")


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """The kernel that a session gets.

    Parameters
    ----------
    spec : KernelSpecInfo
        With the isolation that its kernel will have.
    isolate : str or None
        The isolation to start it with where its kernelspec has none of its own.
    """

    spec: KernelSpecInfo
    isolate: str | None = None


class KernelAccess:
    """Chooses kernels for callers, within the settings and the callers' policies."""

    def __init__(self, host: KernelHost, settings: EngineSettings) -> None:
        self._host = host
        self._settings = settings

    def log_effective_settings(self) -> None:
        """Log which kernels scoped tokens may use."""
        if self._settings.allow_unprotected_tokens:
            self._settings.log.warning(
                "scoped tokens may use kernels without isolation (ExecEngine.allow_unprotected_tokens): their code has "
                "all rights of the server's user, whatever their scopes and policies say"
            )
        else:
            self._settings.log.info("the kernels of scoped tokens are isolated, or refused where that cannot be")

    async def kernelspecs(self, caller: Caller) -> list[KernelSpecInfo]:
        """Return the kernelspecs that a caller may use, with the isolation that their kernels would get."""
        usable = []
        for spec in map(self._with_isolation, await self._host.kernelspecs()):
            # `IsolationRequired` is one, too: a kernelspec that could only be refused is not listed.
            with suppress(PolicyDenied):
                usable.append((await self._isolated(caller, spec, None)).spec)
        return usable

    async def choose(
        self, caller: Caller, request: SessionRequest, sessions: Sequence[Session], *, is_granted: bool = False
    ) -> ChosenKernel:
        """Return the kernel for a requested session.

        Parameters
        ----------
        sessions : sequence of Session
            Sessions that the caller may see.
        is_granted : bool
            Whether the owner has granted this kernel to the caller.

        Raises
        ------
        MissingScope
            If the request needs a scope that the caller lacks.
        PolicyDenied
            If a policy of the caller refuses the kernel.
        IsolationRequired
            If the kernel cannot have the isolation that is required.
        KernelSpecNotFound, KernelNotFound
            If there is no such kernelspec, or no such kernel to attach to.
        Conflict
            If the kernel to attach to is that of one of `sessions`.
        """
        if request.kernel_id is not None and is_granted:
            spec = self.grantable(caller, request.kernel_id)
            _require(spec, request.isolation or "none")
            return ChosenKernel(spec)
        for needed in _scopes_for(request):
            if needed not in caller.scopes:
                raise MissingScope(f"this needs the scope {needed!r}, which the token does not have")
        if request.kernel_id is None:
            spec = await self._find(caller, request.kernel_name or self._host.default_kernel_name)
        else:
            spec = self._attachable(caller, request.kernel_id, sessions)
        spec = self._with_isolation(spec)
        if request.kernel_id is not None:  # it runs as it was started
            self._check(caller, spec)
            _require(spec, request.isolation or "none")
            return ChosenKernel(spec)
        return await self._isolated(caller, spec, request.isolation)

    def grantable(self, bearer: Caller, kernel_id: str) -> KernelSpecInfo:
        """Return the kernelspec of a running kernel that a grant can open to a token's bearer, isolated or not.

        Raises
        ------
        KernelNotFound
            If the host has no such kernel, or it was started for a session.
        PolicyDenied, IsolationRequired
            If a policy does not allow the kernelspec, or has limits that would hold for the kernel's user, too.
        """
        spec = self._with_isolation(self._host.running(kernel_id))
        for policy in bearer.policies:
            check_kernel_name(policy, spec.name)
        if EffectiveLimits(self._settings, bearer).session_limits().process_limits.any:
            raise IsolationRequired(
                "the token's policy limits processor time or memory (max_cpu_seconds, max_memory_bytes), which would "
                "limit the kernel's user, too; use a token without these limits"
            )
        return spec

    async def _isolated(self, caller: Caller, spec: KernelSpecInfo, asked: str | None) -> ChosenKernel:
        """Return a kernel with the strictest isolation that settings, policies and request ask for."""
        for policy in caller.policies:
            check_kernel_name(policy, spec.name)
        requested = max(asked or "none", self._settings.default_isolation, key=ISOLATION_LEVELS.index)
        levels = [requested, *(policy.isolation for policy in caller.policies)]
        if caller.bounds and not self._settings.allow_unprotected_tokens:
            # The weakest level will do. Code without isolation can read the server's own token.
            levels.append(_LOCAL_LEVELS[-1])
        needs_sandbox = has_rules(caller.policies) or bool(grants_within(caller.policies))
        if needs_sandbox:
            levels.append(_LOCAL_LEVELS[0])
        elif any(policy.network == NO_NETWORK for policy in caller.policies):
            levels.append(_LOCAL_LEVELS[-1])
        least = max(levels, key=ISOLATION_LEVELS.index)
        if _has(spec.isolation, least):
            await self._require_provisioner_works(spec)
            if needs_sandbox and spec.isolation != _LOCAL_LEVELS[0]:
                raise IsolationRequired(
                    f"the kernel {spec.name!r} runs elsewhere, where the network rules, mounts and devices of the "
                    "policy cannot hold; choose a kernelspec of this machine"
                )
            return ChosenKernel(spec)
        problems = []
        # The strongest level that works on this machine, also where a weaker one would do.
        for level in _LOCAL_LEVELS if spec.provisioner in ISOLATABLE else ():
            if _has(level, least):
                problem = await why_unavailable(level)
                if problem is None:
                    return ChosenKernel(replace(spec, isolation=level), level)
                problems.append(f"{level}: {problem}")
        why = "; ".join(problems)
        # Two checks for two messages: the request or the server asks for the isolation, or a policy of the caller does.
        _require(spec, requested, why)
        self._check(caller, spec, why)
        _require(spec, least, why)
        raise AssertionError("one of these must have refused")

    async def _require_provisioner_works(self, spec: KernelSpecInfo) -> None:
        """Refuse a kernelspec whose provisioner is ours and cannot isolate kernels here."""
        level = level_by_name(spec.provisioner)
        problem = None if level is None else await why_unavailable(level)
        if problem is not None:
            raise IsolationRequired(
                f"the kernel {spec.name!r} is to have the isolation {level!r}, and cannot: {problem}"
            )

    async def _find(self, caller: Caller, kernel_name: str) -> KernelSpecInfo:
        try:
            return await self._host.find(kernel_name)
        except KernelSpecNotFound:  # its message names every kernelspec, also those that a policy refuses
            if not caller.bounds:
                raise
            names = ", ".join(spec.name for spec in await self.kernelspecs(caller)) or "none"
            raise KernelSpecNotFound(f"there is no kernelspec {kernel_name[:100]!r}; you may use {names}") from None

    def _attachable(self, caller: Caller, kernel_id: str, sessions: Sequence[Session]) -> KernelSpecInfo:
        for policy in caller.policies:
            check_attach(policy)
        for session in sessions:
            if session.kernel_id == kernel_id and not session.attached:
                # The kernel of another caller's session is unknown to `running`, as if it did not exist.
                raise Conflict(f"this is the kernel of the session {session.id!r}; use that session")
        return self._host.running(kernel_id)

    def _with_isolation(self, spec: KernelSpecInfo) -> KernelSpecInfo:
        """Return the kernelspec with the isolation that its provisioner gives."""
        # With the machine's own network, a kernel can connect to its local services: it counts as not isolated.
        level = "none" if spec.host_network else self._settings.isolation_levels.get(spec.provisioner, "none")
        return replace(spec, isolation=level)

    def _check(self, caller: Caller, spec: KernelSpecInfo, why: str = "") -> None:
        """Check that a caller may use a kernel with the isolation of `spec`; raise `PolicyDenied` if not."""
        for policy in caller.policies:
            check_kernel(policy, spec.name, spec.isolation, why)
        if caller.bounds and spec.isolation == "none" and not self._settings.allow_unprotected_tokens:
            raise IsolationRequired(f"{UNPROTECTED} ({why})" if why else UNPROTECTED)


def _has(level: str, least: str) -> bool:
    return ISOLATION_LEVELS.index(level) >= ISOLATION_LEVELS.index(least)


def _require(spec: KernelSpecInfo, least: str, why: str = "") -> None:
    if not _has(spec.isolation, least):
        because = f": {why}" if why else ""
        raise IsolationRequired(
            f"the kernel {spec.name!r} has the isolation {spec.isolation!r}, and cannot have {least!r} here, which is "
            f"asked for{because}"
        )


def _scopes_for(request: SessionRequest) -> Iterator[str]:
    yield require_scope("sessions:create" if request.kernel_id is None else "kernels:attach")
    if request.env:  # some variables make a kernel run code when it starts
        yield require_scope("executions:create")
    if request.auto_checkpoint != AUTO_CHECKPOINT_OFF:
        yield require_scope("sessions:checkpoint")
