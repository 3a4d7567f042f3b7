"""Factory of live sessions: chooses a kernel, takes a pooled one if it fits, and counts the session against limits."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...auth.caller import Caller, owner
from ...auth.policy import check_env
from ...errors import Draining, ExecError, InvalidRequest, PoliciesInvalid, ShuttingDown, TooManySessions
from ...isolation.network.access_decision import NetworkAccess
from ...models import KernelGrant, KernelSpecInfo, Session, SessionRequest, SessionState
from ...protocol.kernel_preparation import inherited_environment, kernel_environment
from ...protocol.record_ids import new_id
from ...protocol.records_json import utc_timestamp
from ...protocol.run_environment import change_directory_code
from ...system.marked_processes import MARK
from ..access.caller_limits import Admission, EffectiveLimits, SessionLimits
from ..access.grant_service import GrantService
from ..access.kernel_access import KernelAccess
from ..access.policy_grants import grants_within
from ..access.secret_service import SecretService
from ..access.token_watch import TokenWatch
from ..change_feed import ChangeFeed
from ..concurrency import BackgroundTasks
from ..files.file_locator import FileLocator
from ..kernels.kernel_start import KernelStarter
from ..kernels.provisioners import plain_name
from ..kernels.secret_placeholders import placeholders
from ..kernels.session_kernel import SessionKernel
from ..kernels.shared_resources import EngineResources
from ..kernels.warm_pool import KernelPool
from ..kernels.warm_pool_plan import KernelKind
from ..ports import KernelHost, KernelLaunch, SessionFiles, Store
from ..settings import EngineSettings
from .live_session import LiveSession
from .session_late_output import SessionLateOutput
from .session_networks import SessionNetworks
from .session_packages import READABLE_VARIABLE, PackagesPlan, SessionPackages
from .session_registry import SessionRegistry
from .token_ends import TokenEnds

# A drained server ends soon, and another one takes its place.
_DRAINED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Kernel, environment and limits of a session to be built.

    Parameters
    ----------
    spec : KernelSpecInfo
        With the isolation that its kernel will have.
    isolate : str or None
        The isolation to start the kernel with where its kernelspec has none of its own.
    env : mapping
        The kernel's environment, without the session's mark.
    kind : KernelKind or None
        The kind of pooled kernel that fits; None if none does.
    grant : KernelGrant or None
        Grant by which the caller attaches to the kernel.
    network : NetworkAccess or None
        What the kernel reaches by network rules.
    secrets : tuple of str
        Names of the secrets of which the kernel gets placeholders.
    packages : PackagesPlan or None
        Packages of the session's own.
    """

    spec: KernelSpecInfo
    isolate: str | None
    env: Mapping[str, str]
    limits: SessionLimits
    kind: KernelKind | None
    grant: KernelGrant | None = None
    network: NetworkAccess | None = None
    secrets: tuple[str, ...] = ()
    packages: PackagesPlan | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """Origin of a session that is a branch of another one.

    Parameters
    ----------
    session_id : str
        Id of the other session.
    launch : callable
        Returns the launch of the kernel, given the id of the branch.
    """

    session_id: str
    launch: Callable[[str], KernelLaunch]


class SessionFactory:
    """Plans and builds live sessions, and fills the pool for those to come."""

    def __init__(
        self,
        settings: EngineSettings,
        host: KernelHost,
        store: Store,
        *,
        registry: SessionRegistry,
        access: KernelAccess,
        admission: Admission,
        token_watch: TokenWatch,
        grants: GrantService,
        networks: SessionNetworks,
        secrets: SecretService,
        packages: SessionPackages,
        locator: FileLocator,
        pool: KernelPool,
        resources: EngineResources,
        background: BackgroundTasks,
        feed: ChangeFeed,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._settings = settings
        self._host = host
        self._store = store
        self._registry = registry
        self._access = access
        self._admission = admission
        self.token_ends = TokenEnds(token_watch, admission, background)
        self._grants = grants
        self._networks = networks
        self._secrets = secrets
        self._packages = packages
        self._locator = locator
        self._pool = pool
        self._resources = resources
        self._background = background
        self._feed = feed
        self._log = log

    async def plan(
        self, caller: Caller, request: SessionRequest, visible: Sequence[Session], branch: Branch | None = None
    ) -> SessionPlan:
        """Return what a requested session gets, within the caller's policies.

        Parameters
        ----------
        visible : sequence of Session
            The caller's present sessions, if the request attaches to a kernel.
        branch : Branch, optional
            Origin of a session that is a branch.

        Raises
        ------
        MissingScope, PolicyDenied, IsolationRequired, KernelSpecNotFound, KernelNotFound, Conflict
            As `KernelAccess.choose`.
        """
        grant = self._grants.find(caller, request.kernel_id)
        chosen = await self._access.choose(caller, request, visible, is_granted=grant is not None)
        spec = chosen.spec
        for policy in caller.policies:
            check_env(policy, request.env)
        if request.cwd and (spec.language != "python" or spec.isolation == "remote"):
            raise InvalidRequest("'cwd' is for Python kernels on this server")
        inherited = inherited_environment(os.environ, self._settings.inherited_env)
        env = kernel_environment(inherited, request.env, caller_names=self._settings.caller_env)
        network = None if request.kernel_id is not None else await self._networks.access_of(caller)
        secrets: tuple[str, ...] = ()
        of_policies = grants_within(caller.policies) if request.kernel_id is None else {}
        if network is not None:
            secrets = await self._secrets.load(tuple(caller.policies), network)
            if taken := request.env.keys() & set(secrets):
                raise InvalidRequest(f"'env' may not set {min(taken)!r}: it is a secret of the session")
            of_policies |= await self._networks.environment(network, secrets)
        packages = None
        if request.kernel_id is None:
            packages = await self._packages.plan(caller, spec, "" if branch is None else branch.session_id)
        if packages is not None and spec.isolation != "none":
            of_policies[READABLE_VARIABLE] = packages.readable
        env |= of_policies
        limits = EffectiveLimits(self._settings, caller).session_limits()
        kind = None
        # A pooled kernel has started already, so it cannot get variables of the request.
        is_poolable = request.kernel_id is None and not request.env and spec.isolation != "remote"
        if is_poolable and not self._host.runs_elsewhere(spec.name):
            version = self._host.version_of(spec.name)
            # The whole environment is part of the kind, since the server's own may change while it runs.
            kind = KernelKind(
                spec.name,
                spec.language,
                version,
                chosen.isolate,
                frozenset(env.items()),
                limits.process_limits,
                frozenset(of_policies.items()),
                secrets,
            )
        return SessionPlan(spec, chosen.isolate, env, limits, kind, grant, network, secrets, packages)

    def build(
        self,
        caller: Caller,
        request: SessionRequest,
        plan: SessionPlan,
        setup_code: str | None,
        branch: Branch | None = None,
    ) -> LiveSession:
        """Return a registered session, with a pooled kernel or one that is yet to be started.

        A `branch` has the state of a checkpoint, and its first kernel has run the set-up code.

        Nothing is awaited between the check of a limit and the registration, so two requests cannot both get the last
        place.

        Raises
        ------
        ShuttingDown, Draining, PoliciesInvalid, TooManySessions, PolicyLimitReached, PolicyDenied
            If there is no place for it.
        """
        self._check_room(caller)
        self._grants.require_active(plan.grant)  # it may have ended since `plan`
        idle_seconds = EffectiveLimits(self._settings, caller).idle_seconds(request.idle_timeout_seconds)
        # After all checks: a refused request must not take a kernel out of the pool.
        pooled = None if plan.kind is None or branch is not None else self._pool.take(plan.kind)
        spec, ready = plan.spec, None if pooled is None else pooled.kernel
        moment = utc_timestamp(time.time())
        record = Session(
            id=new_id("ses", self._settings.server_name) if pooled is None else pooled.session_id,
            owner=caller.principal,
            kernel_name=spec.name,
            language=spec.language or ("" if ready is None else ready.language),
            state=SessionState.STARTING if pooled is None else SessionState.IDLE,
            created_at=moment,
            last_activity_at=moment,
            name=request.name,
            isolation=spec.isolation,
            idle_timeout_seconds=idle_seconds,
            metadata=request.metadata,
            kernel_id=request.kernel_id if pooled is None else pooled.kernel_id,
            kernel_starts=0 if pooled is None else 1,
            attached=request.kernel_id is not None,
            grant_id=None if plan.grant is None else plan.grant.id,
            branch_of=None if branch is None else branch.session_id,
            auto_checkpoint=request.auto_checkpoint,
        )
        files = self._locator.files_of(record)
        packages = None if plan.packages is None else self._packages.register(record.id, plan.packages)
        directory = change_directory_code(request.cwd) if request.cwd else None
        setups = [code for code in (setup_code, directory) if code]
        code = "\n".join(setups) if setups and spec.language == "python" and spec.isolation != "remote" else None
        kernel = ready or self._new_kernel(record, plan, files, None if branch is None else branch.launch(record.id))
        network = None
        if plan.network is not None:
            network = self._networks.begin(record.id, record.owner, plan.network, plan.secrets)
        kernel.adopt(packages, code, _title(record, caller), network)
        live = LiveSession(
            record,
            request,
            kernel,
            files=files,
            store=self._store.sessions,
            late_output=SessionLateOutput(record.id, record.owner, self._store.executions, self._feed),
            feed=self._feed,
            limits=plan.limits,
            setup_code=setup_code,
            log=self._log,
        )
        self._registry.add_session(live)
        live.on_end(self._pool.refill_soon)  # its kernel leaves room
        if network is not None:
            network.on_wanted = lambda rules: live.note(wanted_rules=rules)
        live.on_end(partial(self._networks.end, record.id))
        live.on_end(partial(self._packages.unregister, record.id))
        self.token_ends.follow_session(caller, live)
        if plan.grant is not None:
            live.on_end(self._grants.watch(plan.grant.id, partial(self._end_with_grant, live)))
        return live

    def _check_room(self, caller: Caller) -> None:
        if self._registry.stopping:
            raise ShuttingDown("the server is shutting down")
        if self._registry.draining:
            raise Draining(
                "this server is drained and takes no new sessions; use another server, or have its owner end that with "
                "'jupyter exec drain --undo'",
                retry_after_seconds=_DRAINED_SECONDS,
            )
        if self._registry.policy_problem:
            raise PoliciesInvalid(self._registry.policy_problem)
        self._registry.remove_ended()
        sessions, most = self._registry.sessions, self._settings.max_sessions
        if most and len(sessions) >= most:
            raise TooManySessions(f"this server runs at most {most} sessions; delete one first")
        self._admission.check_session(caller, (live.record.owner for live in sessions.values()))

    def _new_kernel(
        self, session: Session, plan: SessionPlan, files: SessionFiles, launch: KernelLaunch | None
    ) -> SessionKernel:
        starter = KernelStarter(
            session.kernel_name,
            {**plan.env, **placeholders(session.id, plan.secrets), MARK: session.id},
            session_id=session.id,
            language=session.language,
            attach_to=session.kernel_id if session.attached else None,
            isolate=plan.isolate,
            host=self._host,
            files=files,
            resources=self._resources,
            start_timeout_seconds=plan.limits.kernel_start_timeout_seconds,
            process_limits=plan.limits.process_limits,
            launch=launch,
        )
        return SessionKernel(starter, self._log)

    def _end_with_grant(self, live: LiveSession, reason: str) -> None:
        """End a session whose kernel is no longer shared with its token."""
        self._background.start(live.close(f"the kernel is no longer shared with the token: {reason}", now=True))

    async def fill_pool(self) -> None:
        """Start the kernels that are kept ready from the server's start on (`pool_kernels`)."""
        for name in self._settings.pool_kernels:
            plain = plain_name(name)
            request = SessionRequest(plain, isolation=None if plain == name else name[len(plain) + 1 :])
            try:
                plan = await self.plan(owner("pool"), request, ())
            except ExecError as error:
                # A wrong name must not keep the server from starting.
                self._log.error("ExecEngine.pool_kernels: %s", error.message)
                continue
            self._pool.keep([] if plan.kind is None else [plan.kind])


def _title(session: Session, caller: Caller) -> str:
    """Return the name of a session for all Jupyter clients: one line, with the name of its token."""
    name = session.name or session.id
    title = f"{name} ({caller.token_name})" if caller.token_name else name
    # Agents choose names, and not all clients show what would hide or reorder other text.
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in title)
