"""Server's side of the egress proxy: starts its process, hands sessions to it, and starts it again when it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from .access_decision import NetworkAccess
from .control_messages import (
    MAX_MESSAGE_BYTES,
    ControlSocket,
    MessageTooLong,
    NetworkRequest,
    ProxySettings,
    access_to_json,
)
from .libraries import INSTALL_COMMAND, missing_libraries
from .proxy_launch import start_proxy_process
from .timeouts import finish_within
from .upstream import UpstreamProxy

_START_SECONDS = 20.0
_OPEN_SECONDS = 30.0
_ANSWER_SECONDS = 20.0
#: Pauses before the process is started again; the first one after it has run for `_STABLE_SECONDS`, the long ones only
#: while it does not become ready.
_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 1.0, 2.0, 5.0)
_LONGEST_AFTER_READY = 4
_STABLE_SECONDS = 5.0
_POLL_SECONDS = 0.005
_log = logging.getLogger(__name__)


class ProxyUnavailable(RuntimeError):
    """The egress proxy is not running, so that sessions with network rules have no network."""


class _ServedSession:
    """A session as the server keeps it."""

    def __init__(self, listener: socket.socket, access: NetworkAccess, uploaded_bytes: int) -> None:
        self.listener, self.access = listener, access
        self.uploaded_bytes = uploaded_bytes
        self.handed_to: ControlSocket | None = None


class ProxySupervisor:
    """The egress proxy of a server, for all sessions that have network rules.

    Parameters
    ----------
    settings : ProxySettings
        Settings that all sessions share.
    on_request : callable
        Called in the event loop with the record of each request, when that has ended.

    Raises
    ------
    ProxyUnavailable
        If a library that the proxy needs is not installed.
    RuleError
        If the URL of the upstream proxy is not written as it must be.
    """

    def __init__(self, settings: ProxySettings, on_request: Callable[[NetworkRequest], None]) -> None:
        missing = missing_libraries()
        if missing:
            raise ProxyUnavailable(f"network rules need {' and '.join(missing)}; install them with {INSTALL_COMMAND}")
        if settings.upstream_proxy:
            UpstreamProxy(settings.upstream_proxy)
        self._settings, self._on_request = settings, on_request
        self._sessions: dict[str, _ServedSession] = {}
        self._begun: dict[int, dict[str, Any]] = {}
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._number = 0
        self._control: ControlSocket | None = None
        self._ready: asyncio.Event | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._certificate = ""
        self._key_file = -1

    @property
    def pid(self) -> int | None:
        """Id of the proxy's process, if it runs."""
        return self._process.pid if self._process is not None and self._control is not None else None

    async def certificate(self) -> str:
        """Return the certificate of the proxy's authority, in PEM; it stays the same as long as the server runs."""
        await self._connection()
        return self._certificate

    async def open(
        self, session_id: str, listener: socket.socket, access: NetworkAccess, uploaded_bytes: int = 0
    ) -> None:
        """Serve a session's programs.

        Parameters
        ----------
        session_id : str
            Its id.
        listener : socket.socket
            Listening socket in the session's network namespace. It is duplicated, so the caller may close it.
        access : NetworkAccess
            Its rules.
        uploaded_bytes : int, optional
            Bytes that it has sent before, with an earlier kernel.

        Raises
        ------
        ProxyUnavailable
            If the proxy's process cannot be started at the moment. It serves the session as soon as it can.
        MessageTooLong
            If the rules are too many.
        """
        if session_id in self._sessions:
            raise ValueError(f"session {session_id} is open already")
        self.check(access)
        session = self._sessions[session_id] = _ServedSession(listener.dup(), access, uploaded_bytes)
        try:
            await self._hand_over(session_id, session)
        except ProxyUnavailable:
            raise
        except BaseException:
            self._forget(session_id)
            raise

    async def change(self, session_id: str, access: NetworkAccess) -> None:
        """Replace a session's rules. Connections that they do not allow any more are cut.

        Parameters
        ----------
        session_id : str
            Its id.
        access : NetworkAccess
            Its new rules. They also apply after a failure of this call.

        Raises
        ------
        KeyError
            If the session is not open.
        MessageTooLong
            If the rules are too many; then they do not apply.
        ProxyUnavailable
            If the proxy's process cannot be started at the moment.
        """
        self.check(access)
        session = self._sessions[session_id]
        session.access, session.handed_to = access, None
        await self._hand_over(session_id, session)

    async def close(self, session_id: str) -> None:
        """End the connections of a session, if it is open; their records have been delivered afterwards.

        Parameters
        ----------
        session_id : str
            Its id.
        """
        if self._forget(session_id) and self._control is not None:
            with suppress(ProxyUnavailable, OSError):  # then its connections have ended with the process
                await self._ask(self._control, {"op": "close", "session_id": session_id})

    async def stop(self) -> None:
        """End the process and all connections."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        for session_id in list(self._sessions):
            self._forget(session_id)
        if self._key_file >= 0:
            os.close(self._key_file)
            self._key_file = -1

    def _forget(self, session_id: str) -> bool:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.listener.close()
        return session is not None

    def check(self, access: NetworkAccess) -> None:
        """Check that rules can be sent to the process; raises `MessageTooLong`."""
        if len(json.dumps(access_to_json(access))) > MAX_MESSAGE_BYTES - 1000:
            raise MessageTooLong("the network rules of the session's policies are too many; use fewer rules")

    async def _connection(self) -> ControlSocket:
        """Return the connection to the process; start it if it does not run, and wait until it is ready."""
        if self._supervisor is None or self._ready is None:
            self._ready = asyncio.Event()
            self._supervisor = asyncio.create_task(self._supervise(self._ready))
        try:
            await finish_within(_OPEN_SECONDS, self._ready.wait())
        except asyncio.TimeoutError as error:
            raise ProxyUnavailable("the egress proxy does not start; the server's log has the reason") from error
        assert self._control is not None
        return self._control

    async def _hand_over(self, session_id: str, session: _ServedSession) -> None:
        """Give a session to the process; to the next one if that ends meanwhile."""
        while self._sessions.get(session_id) is session:
            control = await self._connection()
            if session.handed_to is control:
                return
            try:
                await self._send_session(control, session_id, session)
            except (OSError, ProxyUnavailable):
                await asyncio.sleep(_POLL_SECONDS)  # the supervisor notices, and starts another process

    async def _send_session(self, control: ControlSocket, session_id: str, session: _ServedSession) -> None:
        access = session.access
        message: dict[str, Any] = {"op": "open", "session_id": session_id, "access": access_to_json(access)}
        message["uploaded_bytes"] = session.uploaded_bytes
        with session.listener.dup() as listener:  # the session may end while the message waits to be sent
            await self._ask(control, message, (listener.fileno(),))
        if session.access is access:
            session.handed_to = control

    async def _ask(self, control: ControlSocket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()

        async def send_and_wait() -> None:
            await control.send({**message, "id": number}, descriptors)
            await answer

        try:
            await finish_within(_ANSWER_SECONDS, send_and_wait())
        except asyncio.TimeoutError:
            if control is self._control and self._process is not None:
                _log.error("the egress proxy does not answer; it is ended")
                self._process.kill()
            raise ProxyUnavailable("the egress proxy does not answer") from None
        finally:
            del self._answers[number]

    async def _supervise(self, ready: asyncio.Event) -> None:
        """Keep a process running until this task is cancelled."""
        loop = asyncio.get_running_loop()
        ends = 0
        while True:
            await asyncio.sleep(_PAUSES[min(ends, len(_PAUSES) - 1)])
            started_at = loop.time()
            try:
                await self._run_once(ready)
            except (OSError, asyncio.TimeoutError, ValueError) as error:
                _log.error("the egress proxy could not be started: %s", error or type(error).__name__)
            finally:
                was_ready = ready.is_set()
                ready.clear()
                await self._end_process()
            if was_ready:
                ends = 0 if loop.time() - started_at > _STABLE_SECONDS else min(ends + 1, _LONGEST_AFTER_READY)
            else:
                ends += 1
            _log.warning("the egress proxy has ended; it is started again")

    async def _run_once(self, ready: asyncio.Event) -> None:
        """Start a process, give it all sessions, and read what it reports until it ends."""
        if self._key_file < 0:
            # The key of the authority outlives a process here. The server never reads it.
            self._key_file = os.memfd_create("authority", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            control = ControlSocket(ours)
            self._control = control
            self._process = start_proxy_process(theirs)
        await control.send(asdict(self._settings), (self._key_file,))
        first = await finish_within(_START_SECONDS, control.receive())
        if first is None:
            raise OSError("its process ended at once")
        self._certificate = first[0]["certificate"]
        handing = asyncio.create_task(self._hand_all(control, ready))
        try:
            while (received := await control.receive()) is not None:
                self._handle(received[0])
        finally:
            handing.cancel()
            await asyncio.gather(handing, return_exceptions=True)

    async def _hand_all(self, control: ControlSocket, ready: asyncio.Event) -> None:
        for session_id, session in list(self._sessions.items()):
            try:
                if self._sessions.get(session_id) is session:
                    await self._send_session(control, session_id, session)
            except (OSError, ProxyUnavailable) as error:
                if self._sessions.get(session_id) is session:  # otherwise it has ended meanwhile, or has another kernel
                    _log.error("the egress proxy cannot be given session %s: %s", session_id, error)
                    if self._process is not None:
                        self._process.kill()  # the next one gets them all again
                    return
        ready.set()

    async def _end_process(self) -> None:
        """End the process, and report its requests that were open."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            while self._process.poll() is None:  # noqa: ASYNC110 - a killed process ends in milliseconds
                await asyncio.sleep(_POLL_SECONDS)
            self._process = None
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ProxyUnavailable("the egress proxy has ended"))
        begun, self._begun = self._begun, {}
        for fields in begun.values():
            self._record({**fields, "verdict": "failed", "reason": "the egress proxy has ended"})

    def _handle(self, message: dict[str, Any]) -> None:
        if message["op"] == "begin":
            self._begun[message["number"]] = message["request"]
        elif message["op"] == "end":
            self._record({**self._begun.pop(message["number"], {}), **message["request"]})
        else:
            answer = self._answers.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(None)

    def _record(self, fields: dict[str, Any]) -> None:
        request = NetworkRequest(**fields)
        session = self._sessions.get(request.session_id)
        if session is not None:
            session.uploaded_bytes += request.bytes_sent
        try:
            self._on_request(request)
        except Exception:
            _log.exception("the record of a network request could not be kept")
