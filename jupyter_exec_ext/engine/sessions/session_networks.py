"""Networks of sessions with rules: the proxy behind their sandboxes, its records, and rules for one session alone."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...auth.caller import Caller
from ...errors import Conflict, ExecError, IsolationRequired
from ...isolation.network.access_decision import NetworkAccess, NetworkSecret
from ...isolation.network.certificates_file import CertificatesFile
from ...isolation.network.control_messages import NetworkRequest, ProxySettings
from ...models import NetworkActivity, SessionNetwork
from ...protocol.records_json import utc_timestamp
from ..access.network_rules import load_access, wanted_rule, with_rule
from ..access.secret_service import SecretService
from ..concurrency import BackgroundTasks
from ..ports import AuditTrail, MakeProxy, NetworkProxy
from ..settings import EngineSettings

#: Tells a sandbox to give its kernel the proxy's port. The value is the path of certificates, or empty.
NETWORK_VARIABLE = "JUPYTER_EXEC_NETWORK"
#: How often changes of secrets by other servers with the same store are looked for.
_REFRESH_SECONDS = 5.0
_MAX_REQUESTS = 200
_MAX_ADDED_RULES = 100
_MAX_WANTED_RULES = 20
_MAX_PATH_CHARACTERS = 200


class RuledNetwork:
    """Network of one session with rules.

    Parameters
    ----------
    principal : str
        The session's owner.
    access : NetworkAccess
        What it reaches.
    secrets : sequence of str, optional
        Names of the secrets that it uses; `access` has those that there are now.
    """

    def __init__(
        self,
        session_id: str,
        principal: str,
        access: NetworkAccess,
        proxy: NetworkProxy,
        background: BackgroundTasks,
        log: logging.Logger | logging.LoggerAdapter[Any],
        secrets: Sequence[str] = (),
    ) -> None:
        self.principal = principal
        self.access = access
        self.secrets = secrets
        self.added: list[str] = []
        self.uploaded_bytes = 0  # by all kernels of the session: a restart must not renew what it may send
        self.requests: deque[NetworkActivity] = deque(maxlen=_MAX_REQUESTS)
        self.on_wanted: Callable[[Sequence[str]], object] | None = None
        self._wanted: dict[str, NetworkRequest] = {}  # refused requests by the rules that would allow them
        self._session_id = session_id
        self._proxy = proxy
        self._turn = asyncio.Lock()  # a restart must not open what an earlier start then closes
        self._background = background
        self._log = log

    def serve(self, listener: socket.socket | None) -> None:
        """Hand the listening socket in a sandbox, whose kernel has just started, to the proxy.

        Until the proxy has it, connections wait: nothing gets out before the rules are there.

        Raises
        ------
        IsolationRequired
            If the kernel has no such socket, so that no rules would hold for it.
        """
        if listener is None:
            raise IsolationRequired("the kernel was started without the sandbox that its network rules need")
        self._background.start(self._open(listener.dup()))

    async def _open(self, listener: socket.socket) -> None:
        with listener:
            async with self._turn:
                try:
                    await self._proxy.close(self._session_id)  # a restart has made another sandbox
                    await self._proxy.open(self._session_id, listener, self.access, self.uploaded_bytes)
                except (RuntimeError, ValueError, OSError) as error:
                    self._log.error("session %s has no network: %s", self._session_id, error)

    async def add(self, rule: str, record: Callable[[], None]) -> None:
        """Allow one thing more, for this session alone; `record` is called before it applies."""
        async with self._turn:
            if len(self.added) >= _MAX_ADDED_RULES:
                raise Conflict(f"the session has {_MAX_ADDED_RULES} rules of its own already; put them into its policy")
            access = with_rule(self.access, rule)
            try:
                self._proxy.check(access)
            except ValueError as error:
                raise Conflict(str(error)) from None
            record()
            self.added.append(rule)
            await self._change(access)
        self._wanted = {text: each for text, each in self._wanted.items() if wanted_rule(self.access, each)}
        self._publish_wanted()

    async def set_secrets(self, secrets: tuple[NetworkSecret, ...]) -> None:
        """Replace the values of the session's secrets."""
        async with self._turn:
            access = replace(self.access, secrets=secrets)
            try:
                self._proxy.check(access)
            except ValueError as error:
                self._log.error("session %s has no secrets any more: %s", self._session_id, error)
                access = replace(self.access, secrets=())
            await self._change(access)

    async def _change(self, access: NetworkAccess) -> None:
        self.access = access
        try:
            await self._proxy.change(self._session_id, access)
        except KeyError:
            pass  # its kernel has not started yet
        except RuntimeError as error:  # the proxy takes it when it runs again
            self._log.warning("session %s: its network changed while there is no proxy: %s", self._session_id, error)

    def note(self, request: NetworkRequest, activity: NetworkActivity) -> None:
        """Keep a request that has ended."""
        self.uploaded_bytes += request.bytes_sent
        self.requests.append(activity)
        if activity.wanted_rule and activity.wanted_rule not in self._wanted:
            self._wanted[activity.wanted_rule] = request
            if len(self._wanted) > _MAX_WANTED_RULES:
                del self._wanted[next(iter(self._wanted))]
            self._publish_wanted()

    def _publish_wanted(self) -> None:
        if self.on_wanted is not None:
            self.on_wanted(tuple(self._wanted))

    async def close(self) -> None:
        """End the session's connections; their records have been delivered afterwards."""
        async with self._turn:
            await self._proxy.close(self._session_id)


class SessionNetworks:
    """Networks of all sessions with rules, and the proxy that they share; it is started with the first one."""

    def __init__(
        self,
        settings: EngineSettings,
        make_proxy: MakeProxy | None,
        secrets: SecretService,
        audit: AuditTrail,
        background: BackgroundTasks,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._settings = settings
        self._make_proxy = make_proxy
        self._secrets = secrets
        secrets.on_change = self._renew_secret
        self._audit = audit
        self._background = background
        self._log = log
        self._proxy: NetworkProxy | None = None
        self._certificates = CertificatesFile(settings.network_ca_file)
        self._networks: dict[str, RuledNetwork] = {}
        self._refreshing: asyncio.Task[None] | None = None  # while there are sessions with secrets

    async def access_of(self, caller: Caller) -> NetworkAccess | None:
        """Return what the caller's sessions reach, as `load_access`; None if there are no rules for it."""
        return await load_access(caller.policies, self._settings.named_rule_sets)

    async def environment(self, access: NetworkAccess, secrets: Sequence[str] = ()) -> dict[str, str]:
        """Return the variables that give a kernel the proxy's port; not the placeholders, which differ by session.

        Raises
        ------
        IsolationRequired
            If there can be no proxy here.
        """
        needs_certificate = access.needs_certificate or bool(secrets)
        return {NETWORK_VARIABLE: str(await self._certificates_file()) if needs_certificate else ""}

    def begin(
        self, session_id: str, principal: str, access: NetworkAccess, secrets: Sequence[str] = ()
    ) -> RuledNetwork:
        """Return the network of a session that begins; the caller calls `end` when it has ended."""
        access = replace(access, secrets=self._secrets.of_session(session_id, secrets))
        proxy = self._running_proxy()
        network = RuledNetwork(session_id, principal, access, proxy, self._background, self._log, secrets)
        self._networks[session_id] = network
        if secrets and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_secrets())
        return network

    def end(self, session_id: str) -> None:
        """End the network of a session."""
        network = self._networks.get(session_id)
        if network is not None:
            network.on_wanted = None
            ending = self._background.start(network.close())
            ending.add_done_callback(lambda _: self._forget(session_id))

    def _forget(self, session_id: str) -> None:
        self._networks.pop(session_id)
        if self._refreshing is not None and not self._used_secrets():
            self._refreshing.cancel()
            self._refreshing = None

    def describe(self, session_id: str, isolation: str) -> SessionNetwork:
        """Return what a session reaches, and what it has asked for."""
        network = self._networks.get(session_id)
        if network is None:
            has_machines = isolation in ("none", "remote")
            return SessionNetwork(session_id, "host" if has_machines else "none")
        rules = dict.fromkeys(rule.text for rule_set in network.access.rule_sets for rule in rule_set.rules)
        added = list(dict.fromkeys(network.added))
        return SessionNetwork(
            session_id, "rules", [rule for rule in rules if rule not in added], added, list(network.requests)
        )

    async def allow(self, caller: Caller, session_id: str, rule: str) -> None:
        """Add a rule for one session.

        Raises
        ------
        InvalidRequest
            If the rule is not valid.
        Conflict
            If the session has no rules at all, or too many.
        """
        network = self._networks.get(session_id)
        if network is None:
            raise Conflict(
                "this session has no network rules, to which one could be added; its token's policy decides that "
                "with 'network'"
            )
        await network.add(
            rule, lambda: self._audit.record("network", "rule_added", caller.principal, session_id, rule=rule)
        )

    async def _renew_secret(self, name: str) -> None:
        """Give running sessions the present value of a secret."""
        for session_id, network in list(self._networks.items()):
            if name in network.secrets:
                await network.set_secrets(self._secrets.of_session(session_id, network.secrets))

    def _used_secrets(self) -> set[str]:
        return {name for network in self._networks.values() for name in network.secrets}

    async def _refresh_secrets(self) -> None:
        """Look for changes of the secrets in use by other servers with the same store, until there are none in use."""
        problem = ""
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._secrets.refresh(self._used_secrets())
                problem = ""
            except Exception as error:  # sessions go on with the values that they have, and a deletion must still come
                text = error.message if isinstance(error, ExecError) else repr(error)
                if text != problem:
                    self._log.warning("changes of secrets by other servers are not seen: %s", text)
                problem = text

    async def stop(self) -> None:
        """End the proxy."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        if self._proxy is not None:
            await self._proxy.stop()
        await asyncio.to_thread(self._certificates.remove)

    def _running_proxy(self) -> NetworkProxy:
        if self._proxy is None:
            if self._make_proxy is None:
                raise IsolationRequired("this server has no proxy, so no network rules can hold")
            settings = self._settings
            hosts = {name: list(addresses) for name, addresses in settings.network_hosts.items()}
            shared = ProxySettings(hosts, settings.network_upstream_proxy, settings.network_ca_file)
            try:
                self._proxy = self._make_proxy(shared, self._note)
            except (RuntimeError, ValueError) as error:  # a library is missing, or a setting is wrong
                raise IsolationRequired(f"network rules cannot hold here: {error}") from None
        return self._proxy

    async def _certificates_file(self) -> Path:
        """Return a file with the certificates that this machine trusts, and the proxy's own."""
        own = await self._running_proxy().certificate()
        try:
            return await asyncio.to_thread(self._certificates.ensure, own)
        except OSError as error:
            raise IsolationRequired(f"network rules cannot hold here: {error}") from None

    def _note(self, request: NetworkRequest) -> None:
        """Record a request that has ended."""
        fields = asdict(request)
        session_id = fields.pop("session_id")
        fields["path"] = fields["path"][:_MAX_PATH_CHARACTERS]
        verdict = fields.pop("verdict")
        network = self._networks.get(session_id)
        principal = "" if network is None else network.principal
        self._audit.record("network", verdict, principal, session_id, **fields)
        if network is not None:
            wanted = wanted_rule(network.access, request)
            moment = utc_timestamp(time.time())
            network.note(request, NetworkActivity(moment, verdict=verdict, wanted_rule=wanted, **fields))
