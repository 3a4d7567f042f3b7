"""HTTP handlers of Jupyter's kernels API: version, status, identity, kernelspecs and kernels."""

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
from .standard_json import kernel_to_json, kernelspecs_to_json, make_session_metadata, make_session_name
from .tokens_outside_header import move_token

_MAX_CHARACTERS = 1024
# Actions in the answer of `/api/me`, with the scope that each needs here.
_ACTIONS = (("read", "sessions:read"), ("write", "sessions:create"), ("execute", "executions:create"))


class StandardHandler(ExecHandler):
    """Base class of the handlers: authenticates the token and finds sessions by the ids of their kernels."""

    _clients: ClientRegistry

    def initialize(self, clients: ClientRegistry, **arguments: Any) -> None:  # type: ignore[override]  # it has one more
        """Store the arguments from the route table."""
        super().initialize(**arguments)
        self._clients = clients

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Move the token to its header, and authenticate the request."""
        move_token(self.request, allow_in_url=self._clients.allow_token_in_url)
        await super().prepare()

    async def list_live_sessions(self) -> Sequence[Session]:
        """Return the caller's sessions that have not ended."""
        return await self.engine.list_sessions(self.caller)

    async def find_session(self, kernel_id: str) -> Session:
        """Find the live session of a kernel.

        Parameters
        ----------
        kernel_id : str
            Id of the kernel.

        Returns
        -------
        Session
            The session.

        Raises
        ------
        KernelNotFound
            If the caller has no live session with this kernel.
        """
        for session in await self.list_live_sessions():
            if kernel_id_of(session.id) == kernel_id:
                return session
        raise KernelNotFound(f"there is no kernel {kernel_id!r}; it may have ended, or belong to another token")

    def read_body(self) -> dict[str, Any]:
        """Parse the request's body as a JSON object; an empty body is an empty object.

        Returns
        -------
        dict
            The body.

        Raises
        ------
        InvalidRequest
            If the body is not a JSON object.
        """
        # Jupyter's clients send JSON with any media type. A form of another site can do so too, but not set the header.
        body = self.json_body(if_none={}, of_any_type="Authorization" in self.request.headers)
        if not isinstance(body, dict):
            raise InvalidRequest("the body must be a JSON object")
        return body

    async def create_session(self, kernel: Any, path: str = "", fields: dict[str, str] | None = None) -> Session:
        """Start a session.

        Parameters
        ----------
        kernel : Any
            Kernel of the request's body, unchecked; its ``name`` is that of a kernelspec.
        path : str
            Path that the client sent. Its last part is the session's name.
        fields : dict, optional
            Fields that the session's metadata keeps.

        Returns
        -------
        Session
            The session.

        Raises
        ------
        InvalidRequest
            If the name of the kernelspec is not a string.
        """
        name = kernel.get("name") if isinstance(kernel, dict) else None
        if name is not None and not isinstance(name, str):
            raise InvalidRequest("the kernel's 'name' must be a string")
        if name == "python":  # jupyter_client's alias of its own kernelspec
            name = NATIVE_KERNEL_NAME
        metadata = make_session_metadata(fields) if fields else {}
        request = SessionRequest(kernel_name=name or None, name=make_session_name(path), metadata=metadata)
        return await self.engine.create_session(self.caller, request)

    def send_kernel(self, session: Session, status: int = 200) -> None:
        """Send a session as a kernel.

        Parameters
        ----------
        session : Session
            The session.
        status : int
            HTTP status.
        """
        self.answer(kernel_to_json(session, self._clients.count_connections(session.id)), status)

    def make_url(self, path: str) -> str:
        """Return the URL path of a resource of this API.

        Parameters
        ----------
        path : str
            Path below ``api/``.

        Returns
        -------
        str
            The path from the root of the host.
        """
        return self.request.path.partition("/api/")[0] + "/api/" + path


class VersionHandler(StandardHandler):
    """Handler of ``/api``."""

    @web.authenticated
    async def get(self) -> None:
        """Send the version of Jupyter Server."""
        self.answer({"version": server_version})


class SpecHandler(StandardHandler, OpenAPIHandler):
    """Handler of ``/api/spec.yaml``: the OpenAPI document of this API."""

    package, document = "jupyter_exec_ext.standard_api", "openapi_jupyter.yaml"


class StandardNotFoundHandler(NotFoundHandler):
    """Handler of all other paths below ``exec/jupyter``: not found."""

    described_at = "exec/jupyter/api/spec.yaml"


class StatusHandler(StandardHandler):
    """Handler of ``/api/status``."""

    @web.authenticated
    async def get(self) -> None:
        """Send the number of the caller's kernels and connections."""
        sessions = await self.list_live_sessions()
        activity = [session.last_activity_at for session in sessions]
        connections = sum(self._clients.count_connections(session.id) for session in sessions)
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
    """Handler of ``/api/me``."""

    @web.authenticated
    async def get(self) -> None:
        """Send the caller's identity and its rights on kernels."""
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
    """Handler of ``/api/kernelspecs``."""

    @web.authenticated
    async def get(self) -> None:
        """Send the kernelspecs that the caller may use."""
        specs = await self.engine.kernelspecs(self.caller)
        self.answer(kernelspecs_to_json(specs, self.engine.host.default_kernel_name))


class KernelSpecHandler(StandardHandler):
    """Handler of ``/api/kernelspecs/NAME``."""

    @web.authenticated
    async def get(self, name: str) -> None:
        """Send one kernelspec.

        Raises
        ------
        KernelNotFound
            If the caller may use no kernelspec with this name.
        """
        specs = kernelspecs_to_json(await self.engine.kernelspecs(self.caller), "")["kernelspecs"]
        spec = specs.get(name) or specs.get(name.lower())  # Jupyter's names of kernelspecs are in lower case
        if spec is None:
            raise KernelNotFound(f"there is no kernelspec {name!r} for this token")
        self.answer(spec)


class KernelsHandler(StandardHandler):
    """Handler of ``/api/kernels``."""

    @web.authenticated
    async def get(self) -> None:
        """Send the caller's live sessions as kernels."""
        self.answer(
            [kernel_to_json(each, self._clients.count_connections(each.id)) for each in await self.list_live_sessions()]
        )

    @web.authenticated
    async def post(self) -> None:
        """Start a session, and send it as a kernel."""
        body = self.read_body()
        session = await self.create_session(body, get_text_field(body, "path"))
        self.set_header("Location", self.make_url(f"kernels/{kernel_id_of(session.id)}"))
        self.send_kernel(session, 201)


class KernelHandler(StandardHandler):
    """Handler of ``/api/kernels/{kernel_id}``."""

    @web.authenticated
    async def get(self, kernel_id: str) -> None:
        """Send a kernel."""
        self.send_kernel(await self.find_session(kernel_id))

    @web.authenticated
    async def delete(self, kernel_id: str) -> None:
        """End a kernel and its session."""
        await self.engine.delete_session(self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()


class KernelInterruptHandler(StandardHandler):
    """Handler of ``/api/kernels/{kernel_id}/interrupt``."""

    @web.authenticated
    async def post(self, kernel_id: str) -> None:
        """Interrupt a kernel's code."""
        await interrupt_kernel(self.engine, self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()


class KernelRestartHandler(StandardHandler):
    """Handler of ``/api/kernels/{kernel_id}/restart``."""

    @web.authenticated
    async def post(self, kernel_id: str) -> None:
        """Restart a kernel."""
        session = await self.find_session(kernel_id)
        self.send_kernel(await self.engine.restart_session(self.caller, session.id))


def get_text_field(body: dict[str, Any], name: str) -> str:
    """Return a text field of a request's body.

    Parameters
    ----------
    body : dict
        The body.
    name : str
        Name of the field.

    Returns
    -------
    str
        The text; empty if the field is missing or null.

    Raises
    ------
    InvalidRequest
        If the field is not a string, or has more than 1024 characters.
    """
    value = body.get(name)
    value = "" if value is None else value
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
        raise InvalidRequest(f"{name!r} must be a string of at most {_MAX_CHARACTERS} characters")
    return value
