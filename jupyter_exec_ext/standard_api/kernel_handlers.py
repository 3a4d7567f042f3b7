"""Handlers of Jupyter's standard API: kernels, kernelspecs, sessions, and what a client asks first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_client.kernelspec import NATIVE_KERNEL_NAME
from jupyter_server import __version__ as server_version
from tornado import web

from ..errors import InvalidRequest, KernelNotFound
from ..models import Session, SessionRequest
from ..server.base_handler import ExecHandler
from ..server.info_handlers import NotFoundHandler, OpenAPIHandler
from .client_registry import ClientRegistry
from .interrupts import interrupt_kernel
from .kernel_ids import kernel_id_of
from .standard_json import SESSION_FIELDS, kernel_to_json, kernelspecs_to_json, session_metadata, session_to_json
from .token_places import move_token

_MAX_CHARACTERS = 1024
# What the standard API calls actions on kernels, by the scopes that they need here.
_ACTIONS = (("read", "sessions:read"), ("write", "sessions:create"), ("execute", "executions:create"))


class StandardHandler(ExecHandler):
    """Base of the handlers, which find sessions by the ids of their kernels."""

    _clients: ClientRegistry

    def initialize(self, clients: ClientRegistry, **arguments: Any) -> None:  # type: ignore[override]  # it has one more
        """Store the arguments from the route table."""
        super().initialize(**arguments)
        self._clients = clients

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Find the token where clients of this API put it, and authenticate its bearer."""
        move_token(self.request, allow_in_url=self._clients.allow_token_in_url)
        await super().prepare()

    async def live_sessions(self) -> Sequence[Session]:
        """Return the caller's sessions that have not ended."""
        return await self.engine.list_sessions(self.caller)

    async def find_session(self, kernel_id: str) -> Session:
        """Return the session of a kernel; raise `KernelNotFound` if the caller has no such live session."""
        for session in await self.live_sessions():
            if kernel_id_of(session.id) == kernel_id:
                return session
        raise KernelNotFound(f"there is no kernel {kernel_id!r}; it may have ended, or belong to another token")

    def body(self) -> dict[str, Any]:
        """Return the request's body; clients of this API send it with any media type, or none."""
        # A form, which has other types than JSON's, cannot set the header.
        body = self.json_body(if_none={}, of_any_type="Authorization" in self.request.headers)
        if not isinstance(body, dict):
            raise InvalidRequest("the body must be an object")
        return body

    async def create_session(self, kernel: Any, path: str = "", fields: dict[str, str] | None = None) -> Session:
        """Start a session with the kernel that a client has asked for."""
        name = kernel.get("name") if isinstance(kernel, dict) else None
        if name is not None and not isinstance(name, str):
            raise InvalidRequest("the kernel's 'name' must be a string")
        if name == "python":  # as jupyter_client reads it
            name = NATIVE_KERNEL_NAME
        title = path.rpartition("/")[2][:100]
        metadata = session_metadata(fields) if fields else {}
        request = SessionRequest(kernel_name=name or None, name=title, metadata=metadata)
        return await self.engine.create_session(self.caller, request)

    def answer_kernel(self, session: Session, status: int = 200) -> None:
        """Answer with a session as a kernel."""
        self.answer(kernel_to_json(session, self._clients.count(session.id)), status)

    def standard_url(self, path: str) -> str:
        """Return the URL path of a resource of this API."""
        return self.request.path.partition("/api/")[0] + "/api/" + path


class VersionHandler(StandardHandler):
    """``/api``"""

    @web.authenticated
    async def get(self) -> None:
        """Answer with the version of Jupyter Server whose API this is."""
        self.answer({"version": server_version})


class SpecHandler(StandardHandler, OpenAPIHandler):
    """``/api/spec.yaml``, where Jupyter Server has its description: that of this API."""

    package, document = "jupyter_exec_ext.standard_api", "openapi_jupyter.yaml"


class StandardNotFoundHandler(NotFoundHandler):
    """Every other path below ``exec/jupyter``."""

    described_at = "exec/jupyter/api/spec.yaml"


class StatusHandler(StandardHandler):
    """``/api/status``"""

    @web.authenticated
    async def get(self) -> None:
        """Count the caller's kernels."""
        sessions = await self.live_sessions()
        activity = [session.last_activity_at for session in sessions]
        connections = sum(self._clients.count(session.id) for session in sessions)
        started = self._clients.started_at
        self.answer(
            {
                "started": started,
                "last_activity": max(activity, default=started),
                "connections": connections,
                "kernels": len(sessions),
            }
        )


class MeHandler(StandardHandler):
    """``/api/me``"""

    @web.authenticated
    async def get(self) -> None:
        """Answer with the caller's identity and its rights on kernels."""
        name = self.caller.display_name or self.caller.principal
        identity = {
            "username": self.caller.principal,
            "name": name,
            "display_name": name,
            "initials": None,
            "avatar_url": None,
            "color": None,
        }
        actions = [action for action, scope in _ACTIONS if scope in self.caller.scopes]
        self.answer({"identity": identity, "permissions": {"kernels": actions}})


class KernelSpecsHandler(StandardHandler):
    """``/api/kernelspecs``"""

    @web.authenticated
    async def get(self) -> None:
        """List the kernelspecs that the caller may use."""
        specs = await self.engine.kernelspecs(self.caller)
        self.answer(kernelspecs_to_json(specs, self.engine.host.default_kernel_name))


class KernelSpecHandler(StandardHandler):
    """``/api/kernelspecs/NAME``"""

    @web.authenticated
    async def get(self, name: str) -> None:
        """Read one kernelspec."""
        specs = kernelspecs_to_json(await self.engine.kernelspecs(self.caller), "")["kernelspecs"]
        spec = specs.get(name) or specs.get(name.lower())  # as Jupyter finds them
        if spec is None:
            raise KernelNotFound(f"there is no kernelspec {name!r} for this token")
        self.answer(spec)


class KernelsHandler(StandardHandler):
    """``/api/kernels``"""

    @web.authenticated
    async def get(self) -> None:
        """List the caller's sessions as kernels."""
        self.answer([kernel_to_json(each, self._clients.count(each.id)) for each in await self.live_sessions()])

    @web.authenticated
    async def post(self) -> None:
        """Start a kernel: a session of ours."""
        body = self.body()
        session = await self.create_session(body, _text(body, "path"))
        self.set_header("Location", self.standard_url(f"kernels/{kernel_id_of(session.id)}"))
        self.answer_kernel(session, 201)


class KernelHandler(StandardHandler):
    """``/api/kernels/{kernel_id}``"""

    @web.authenticated
    async def get(self, kernel_id: str) -> None:
        """Read a kernel."""
        self.answer_kernel(await self.find_session(kernel_id))

    @web.authenticated
    async def delete(self, kernel_id: str) -> None:
        """End a kernel, and its session."""
        await self.engine.delete_session(self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()


class KernelInterruptHandler(StandardHandler):
    """``/api/kernels/{kernel_id}/interrupt``"""

    @web.authenticated
    async def post(self, kernel_id: str) -> None:
        """Interrupt a kernel's code."""
        await interrupt_kernel(self.engine, self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()


class KernelRestartHandler(StandardHandler):
    """``/api/kernels/{kernel_id}/restart``"""

    @web.authenticated
    async def post(self, kernel_id: str) -> None:
        """Restart a kernel."""
        session = await self.find_session(kernel_id)
        self.answer_kernel(await self.engine.restart_session(self.caller, session.id))


class StandardSessionsHandler(StandardHandler):
    """``/api/sessions``"""

    @web.authenticated
    async def get(self) -> None:
        """List the caller's sessions."""
        self.answer([session_to_json(each, self._clients.count(each.id)) for each in await self.live_sessions()])

    @web.authenticated
    async def post(self) -> None:
        """Start a session, or return the one for this path or with this kernel, as Jupyter Server does."""
        body = self.body()
        if isinstance(body.get("notebook"), dict):  # the form of clients before 2017
            body = {"type": "notebook", **body["notebook"], **body}
        fields = {name: _text(body, name) for name in SESSION_FIELDS}
        kernel = body.get("kernel")
        kernel_id = kernel.get("id") if isinstance(kernel, dict) else None
        # Of its own: one that another token has made may be meant for that token's code.
        own = [each for each in await self.live_sessions() if each.owner == self.caller.principal]
        known = [session_to_json(each, self._clients.count(each.id)) for each in own]
        same_path = [each for each in known if fields["path"] and each["path"] == fields["path"]]
        found = next(iter(same_path or [each for each in known if each["id"] == kernel_id]), None)
        if found is None:
            found = session_to_json(await self.create_session(kernel, fields["path"], fields), 0)
        self.set_header("Location", self.standard_url(f"sessions/{found['id']}"))
        self.answer(found, 201)


class StandardSessionHandler(StandardHandler):
    """``/api/sessions/{kernel_id}``"""

    @web.authenticated
    async def get(self, kernel_id: str) -> None:
        """Read a session."""
        session = await self.find_session(kernel_id)
        self.answer(session_to_json(session, self._clients.count(session.id)))

    @web.authenticated
    async def delete(self, kernel_id: str) -> None:
        """End a session."""
        await self.engine.delete_session(self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    value = "" if value is None else value
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
        raise InvalidRequest(f"{name!r} must be a string of at most {_MAX_CHARACTERS} characters")
    return value
